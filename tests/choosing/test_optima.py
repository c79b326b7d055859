"""Best rates that others searched for: each inside its ladder, of a model that there is."""

import re
import tomllib
from pathlib import Path

import pytest

from normscope import choosing
from normscope.optim import OPTIMIZERS
from normscope.placement import registered

OPTIMA = tomllib.loads(
    Path(choosing.__file__).with_name("optima.toml").read_text(encoding="utf-8")
)["optimum"]
FIELDS = {
    "name",
    "source",
    "model",
    "placement",
    "blocks",
    "width",
    "optimizer",
    "best_lr",
    "batch_tokens",
    "ladder",
}


def test_every_optimum_has_a_name_of_its_own() -> None:
    assert len(OPTIMA) == 74
    assert len({one["name"] for one in OPTIMA}) == len(OPTIMA)


def test_an_optimum_says_all_that_a_law_asks() -> None:
    for one in OPTIMA:
        assert set(one) - {"updates"} == FIELDS, one["name"]
        assert one["placement"] in registered()
        assert one["model"] in registered()[one["placement"]].models
        assert one["optimizer"] in OPTIMIZERS
        assert re.fullmatch(r"[\w.-]+/[\w.-]+/.+/[0-9a-f]{40}|https://\S+", one["source"])


def test_rates_below_and_above_the_best_were_trained() -> None:
    for one in OPTIMA:
        least, greatest = one["ladder"]
        assert least < one["best_lr"] < greatest, one["name"]


def test_updates_times_their_tokens_are_what_a_training_read() -> None:
    """Step Law's and Lingle's tokens are a column of their own in the source."""
    counted = [one for one in OPTIMA if "updates" in one]
    assert len(counted) == 73
    for one in counted:
        [billions] = re.findall(r" ([\d.]+)B tokens$", one["name"])
        read = one["updates"] * one["batch_tokens"]
        assert read == pytest.approx(float(billions) * 1e9, rel=0.02), one["name"]
