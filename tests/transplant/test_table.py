"""The table of docs/transplant.md: which placements of the registry each architecture can be given,
and why not others.

`python tests/transplant/test_table.py NAME…` prints the rows of these models, or all.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import normscope
from normscope.placement import registered
from transplant.test_transformers import HEADS, MODELS, SIZES, made, opened

PAGE = Path(__file__).parents[2] / "docs/transplant.md"
GPTJ = {"vocab_size": 96, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4}
MORE = {
    "gptj": made("GPTJForCausalLM", **GPTJ),
    "gpt-neox": made("GPTNeoXForCausalLM", **SIZES),
    "gpt-neox-sequential": made("GPTNeoXForCausalLM", **SIZES, use_parallel_residual=False),
    "olmo2": made("Olmo2ForCausalLM", **SIZES, **HEADS, pad_token_id=0),
}
NAMES = tuple(name for name in (*MODELS, *MORE) if name != "bart")
REASONS = {
    "parallel": "is wired in parallel",
    "inside": "applies functions within",
    "undefined": "is not defined for",
    "packed": "the transplanted model cannot be run",
    "unnamed": "after the transplant the doctor reads",
}


def ours() -> list[str]:
    """Placements of the library; other tests of this process may have registered some of their
    own.
    """
    return [name for name, one in registered().items() if one.__module__.startswith("normscope.")]


def refusals(name: str) -> dict[str, str]:
    """Why, by placement."""
    found = {}
    for placement in ours():
        model, batch = opened(name)
        try:
            normscope.transplant(model, placement, inputs=batch)
        except normscope.UserError as error:
            found[placement] = str(error)
    return found


def row(name: str, refused: Mapping[str, str]) -> str:
    """Of the table; raises StopIteration for a reason that is none of those above."""
    by = {
        placement: next(key for key, words in REASONS.items() if words in why)
        for placement, why in refused.items()
    }
    counted = ("parallel", "inside")
    cells = [
        ", ".join(f"`{one}`" for one, why in sorted(by.items()) if why == key)
        for key in REASONS
        if key not in counted
    ]
    parallel, inside = (sum(why == key for why in by.values()) for key in counted)
    return (
        f"| {name} | {len(ours()) - len(refused)} | {parallel or ''} | {inside or ''} | "
        f"{' | '.join(cells)} |"
    )


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_the_manual_has_what_a_model_can_be_given(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transplant.test_transformers.MODELS", MODELS | MORE)
    told = re.findall(rf"^\| {name} \| \d.*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert told == [row(name, refusals(name))]


if __name__ == "__main__":
    MODELS.update(MORE)
    for one in sys.argv[1:] or NAMES:
        print(row(one, refusals(one)), flush=True)
