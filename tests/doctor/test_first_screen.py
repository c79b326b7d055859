"""The first screen of a terminal of 24 lines and 80 columns: what to do, how sure that is, and what
was found.
"""

import io
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

from doctor.bugs import both
from doctor.wired import WIDTH, F, post, pre, tokens
from normscope.doctor.diagnose import diagnose
from normscope.doctor.lint.linter import RULES, in_order_of_cost, reasons
from normscope.doctor.lint.patient import listed
from normscope.doctor.report.text import terminal_page
from normscope.doctor.report.words import first_step, verdict_words
from normscope.doctor.result import Finding, Severity

IDS = torch.arange(32).view(2, 16) + 4


class OnePlus(nn.Module):
    """A norm whose weight is added to 1, with weights that are the whole gain already."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)


def onto_the_normed(x: Tensor, f: F, norm: F) -> Tensor:
    return norm(x) + f(norm(x))


def twice() -> nn.Module:
    model = both(pre, final=1)()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.LayerNorm):
                setattr(parent, name, OnePlus())
    return model


def t5() -> nn.Module:
    model = T5ForConditionalGeneration(
        T5Config(
            vocab_size=97,
            d_model=64,
            d_kv=16,
            d_ff=128,
            num_layers=3,
            num_heads=4,
            tie_word_embeddings=False,
            decoder_start_token_id=0,
        )
    )
    nn.init.normal_(model.lm_head.weight)
    return model


SCREENS: Mapping[str, tuple[Callable[[], nn.Module], Any, float | None]] = {
    "healthy": (
        lambda: GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=64, n_head=4, vocab_size=97)),
        IDS,
        None,
    ),
    "a head of std 1": (t5, {"input_ids": IDS, "labels": IDS}, None),
    "a wrong skip": (both(onto_the_normed, final=1), None, None),
    "Post-LN at 1e-3": (both(post), None, 1e-3),
    "gains of 1 + w twice": (twice, None, None),
}


@pytest.mark.parametrize("name", SCREENS)
def test_the_first_screen_says_what_to_do(name: str) -> None:
    build, inputs, rate = SCREENS[name]
    torch.manual_seed(0)
    model = build()
    found = diagnose(model, tokens(model) if inputs is None else inputs, wanted_rate=rate)
    file = io.StringIO()
    Console(file=file, width=80).print(terminal_page(found, reasons()))
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    flowing = " ".join(" ".join(lines).split())
    wrong = any(one.severity != "info" for one in found.findings)
    # First and last: what stood first has scrolled away.
    times = 2 if wrong else 1
    assert all(flowing.count(" ".join(one.fix.split())) == times for one in found.findings[:1])
    rates = next(at for at, line in enumerate(lines, 1) if line.startswith("learning rate with"))
    first = next(at for at, line in enumerate(lines, 1) if line.startswith("details "))
    if wrong:
        found_at = lines.index(next(line for line in lines if line.startswith(("warn", "error"))))
        assert found_at < rates < first
        last = " ".join(" ".join(lines[len(lines) - lines[::-1].index("") :]).split())
        assert last == f"{verdict_words(found)} {first_step(found)}"
    else:
        assert rates < first <= 24
    word = lines[0].partition(" ")[0]
    assert word in (("mend", "check") if wrong else ("nothing", "lower", "warm", "try", "compare"))
    if name == "healthy":
        assert lines[0] == "nothing to do"
    if name == "Post-LN at 1e-3":
        first_lines = flowing.partition("pre-ln")[0].partition("post-ln")[0]
        assert flowing.startswith("warm up to 1e-3 over the first ")
        # It lies below the usual rates of so narrow a model: nobody is to lower it.
        assert (
            "% of the updates, the longer of 2 sources with 1 % and 8 %; `--warmup-updates`"
            in first_lines
        )
        assert "or lower the rate" not in first_lines
    if name == "a head of std 1":
        said = "check loss-far-from-chance: `shared.weight` has deviation 0.996; give it 0.125,"
        assert flowing.startswith(said)


def test_what_ends_a_training_is_told_before_what_costs_less() -> None:
    worst_first = (
        ("nonfinite-update", Severity.ERROR),
        ("stuck-weights", Severity.ERROR),
        ("rate-out-of-range", Severity.WARNING),
        ("lost-residual", Severity.ERROR),
        ("initialisation-unlike-placement", Severity.ERROR),
        ("rounded-updates", Severity.WARNING),
        ("misplaced-step", Severity.WARNING),
        ("loss-far-from-chance", Severity.WARNING),
        ("untied-head", Severity.WARNING),
        ("nonfinite-weights", Severity.INFO),
    )
    findings = [
        Finding(id=id, severity=severity, where="", message="", fix="")
        for id, severity in worst_first
    ]
    places = [rule.id for rule in RULES]
    asked_in_turn = sorted(findings, key=lambda one: places.index(one.id))
    assert asked_in_turn != findings
    assert in_order_of_cost(asked_in_turn) == tuple(findings)


def test_a_first_line_names_what_it_is_about() -> None:
    torch.manual_seed(0)
    found = diagnose(both(onto_the_normed, final=1)(), tokens(both(pre, final=1)()), laws=False)
    leading = found.findings[0]
    assert leading.where
    assert leading.where not in leading.fix
    assert first_step(found).startswith(f"check {leading.id} of {leading.where} at ")


def test_places_that_are_too_many_are_told_by_a_span_of_their_number() -> None:
    names = [f"h.{block}.attn" for block in (0, 1, 2, 3, 7)]
    assert listed(names[:3]) == "h.0.attn, h.1.attn, h.2.attn"
    assert listed(names) == "h.[0–3, 7].attn"
    assert listed([*names, *names, "head"]) == "h.[0–3, 7].attn, head"
    assert listed("abcde") == "a, b, c and 2 more"
    assert listed([f"{block}.mlp" for block in range(4)]) == "[0–3].mlp"
    assert (
        listed([f"a.{block}.b.{unit}" for block in range(2) for unit in range(2)])
        == "a.[0–1].b.[0–1]"
    )
