"""The structure alone: the same streams and names as with weights, and only rules that need no
numbers.
"""

import math
import sys

import pytest
import torch
from torch import nn

import normscope
from doctor.looked import unmeasured
from normscope.cli.main import main
from normscope.doctor.diagnose import structure
from normscope.doctor.result import Health, Severity
from normscope.model import DecoderConfig, LanguageModel, Layout

TOKENS = torch.randint(50, (2, 8), generator=torch.Generator().manual_seed(0))


def encoder(*, final_norm: bool) -> nn.Module:
    layers = [
        nn.TransformerEncoderLayer(32, 4, 64, norm_first=True, batch_first=True) for _ in range(3)
    ]
    return nn.Sequential(
        nn.Embedding(50, 32),
        *layers,
        *([nn.LayerNorm(32)] if final_norm else []),
        nn.Linear(32, 50),
    )


def test_the_structure_is_that_of_the_whole_diagnosis():
    with torch.device("meta"):
        bare, tokens = encoder(final_norm=True), torch.zeros(2, 8, dtype=torch.long)
    found = structure(bare, tokens)
    whole = normscope.diagnose(encoder(final_norm=True), TOKENS, advise=False)
    assert found.stacks == tuple(map(unmeasured, whole.stacks))
    assert found.parameters == whole.parameters
    assert found.verdict is Health.HEALTHY
    assert found.advice is None
    assert math.isnan(found.stacks[0].end_square)


def test_what_needs_no_numbers_is_found_and_the_rest_is_not_asked():
    with torch.device("meta"):
        found = structure(
            encoder(final_norm=False),
            torch.zeros(2, 8, dtype=torch.long),
            wanted_placement="post-ln",
        )
    assert [finding.id for finding in found.findings] == [
        "placement-flag-contradicts",
        "missing-final-norm",
    ]
    assert "nan" not in found.findings[1].message
    asked = {rule.id: rule for rule in found.rules}
    assert asked["missing-final-norm"].asked
    assert not asked["dead-sublayer"].asked
    assert asked["dead-sublayer"].reason == "it needs weights"


def test_what_is_not_understood_contradicts_no_configuration():
    """Streams that are tensors of their own, each read by its own weights, are not found yet."""
    model = LanguageModel(
        DecoderConfig(
            placement="siamese-norm", width=16, ffn_width=16, heads=2, blocks=2, positions=8
        ),
        vocabulary=11,
    )
    tokens, layout = torch.randint(11, (16,)), Layout(torch.tensor([8, 8]))
    found = structure(model, (tokens, layout), wanted_placement="siamese-norm")
    said = [finding for finding in found.findings if finding.id == "placement-flag-contradicts"]
    assert {finding.severity for finding in said} == {Severity.INFO}
    assert all("not recognised as it" in finding.message for finding in said)
    assert [finding.id for finding in found.findings] == [
        "placement-flag-contradicts",
        "unknown-wiring",
    ]


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["normscope", "doctor", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_on_the_command_line(monkeypatch, capsys):
    pytest.importorskip("transformers")
    sizes = ["--set", "n_layer=3", "--set", "n_embd=32", "--set", "n_head=2"]
    code = run(monkeypatch, "GPT2Config", "--structure-only", *sizes)
    shown = capsys.readouterr().out
    assert code in (0, None)
    assert "nothing wrong in the structure" in shown
    assert "feed-forward, block 1–3: x ← x + feed_forward(norm(x))" in shown


@pytest.mark.parametrize("option", [["--rate", "1e-3"], ["--html", "page.html"]])
def test_what_needs_weights_is_refused(option, monkeypatch, capsys):
    assert run(monkeypatch, "GPT2Config", "--structure-only", *option) == 2
    assert f"--structure-only takes no {option[0]}" in capsys.readouterr().err
