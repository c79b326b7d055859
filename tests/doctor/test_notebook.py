"""A diagnosis as the output of a notebook's cell, and as a figure."""

import dataclasses
import html

import pytest
import torch

import normscope
from normscope.doctor.report.words import summary


def test_a_module_of_ours_is_diagnosed_drawn_and_shown() -> None:
    torch.manual_seed(0)
    encoder = normscope.Encoder("sub-ln", width=16, blocks=2, heads=2)
    found = normscope.diagnose(encoder, (torch.randn(2, 6, 16),), advise=False)
    assert {sublayer.placement for sublayer in found.stacks[0].sublayers} == {"sub-ln"}
    panels = {axes.get_title(loc="left") for axes in found.plot().axes if axes.get_visible()}
    assert "Size of the stream" in panels
    shown = html.unescape(found._repr_html_())
    assert summary(found) in shown
    assert str(found.stacks[0].sublayers[0].formula) in shown
    assert "Size of the stream" in shown

    with pytest.raises(ValueError, match="no residual stream"):
        dataclasses.replace(found, stacks=()).plot()
