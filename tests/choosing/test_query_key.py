"""What is known of norms on queries and keys: beside the files and the models that it is from."""

import json
import math
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
import torch

from normscope.choosing.case import ModelToTrain
from normscope.choosing.query_key import answer, evidence, families
from normscope.cli.main import main
from normscope.doctor.identify.stacks import find_stacks

RESULTS = Path(__file__).parents[2] / "results"
T_OF_ONE_DEGREE = 12.7062
"""Student's, two-sided at 95 %."""


def case(**changes: Any) -> ModelToTrain:
    settings = {"model": "decoder-only", "blocks": 12, "width": 768, "optimizer": "adamw"}
    return ModelToTrain(**{**settings, **changes})


def test_the_result_of_ours_is_what_its_file_says() -> None:
    table = json.loads((RESULTS / "placements_cpu" / "results.json").read_text(encoding="utf-8"))
    losses = {
        arm["placement"]: [seed["valid_loss_nats"] for seed in arm["seeds"]]
        for arm in table["arms"]
        if arm["warmup_updates"] == 150
    }
    pairs = zip(losses["OLMo 2"], losses["Reordered norm"], strict=True)
    apart = [with_them - without for with_them, without in pairs]
    (ours,) = (one for one in evidence() if one.citation.startswith("results/"))
    assert ours.difference == pytest.approx(mean(apart), abs=5e-5)
    assert ours.half_width == pytest.approx(T_OF_ONE_DEGREE * stdev(apart) / math.sqrt(2), abs=5e-5)
    assert ours.side == "neither"  # its interval holds 0


def test_who_ends_lower_is_told_by_the_sign() -> None:
    sides = {"with": -1.0, "without": 1.0}
    for one in evidence():
        if one.question == "ends lower" and one.side in sides:
            assert one.difference is not None
            assert one.difference * sides[one.side] > 0
        elif one.half_width is not None and one.difference is not None:
            assert abs(one.difference) < one.half_width


MODELS = {
    "Qwen 3": ("Qwen3ForCausalLM", "Qwen3Config", {"head_dim": 8}),
    "Gemma 3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {"head_dim": 8}),
    "OLMo 2": ("Olmo2ForCausalLM", "Olmo2Config", {"pad_token_id": 0}),
    "Llama 3": ("LlamaForCausalLM", "LlamaConfig", {}),
    "SmolLM3": ("SmolLM3ForCausalLM", "SmolLM3Config", {"pad_token_id": 0}),
}


@pytest.mark.parametrize("name", MODELS)
def test_families_have_the_norms_that_the_doctor_reads_in_them(name: str) -> None:
    transformers = pytest.importorskip(
        "transformers", reason="needs Hugging Face transformers (the `bench` extra)"
    )
    kind, config, more = MODELS[name]
    sizes = {
        "vocab_size": 96,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    model = getattr(transformers, kind)(getattr(transformers, config)(**sizes, **more))
    (stack,) = find_stacks(model, {"input_ids": torch.arange(5, 14)[None]})
    inside = [
        place.by_head
        for branch in stack.sublayers[0].formula.segment.branches
        for place in branch.inside
    ]
    read = {(): "none", (True, True): "head", (False, False): "whole"}[tuple(inside)]
    (told,) = (one.norms for one in families() if name in one.names)
    assert told == read


def test_the_nearest_comes_first_and_its_sign_is_not_hidden() -> None:
    wide, narrow = answer(case(width=768)), answer(case(width=64))
    assert wide.evidence[0].width == 768
    assert narrow.evidence[0].width == 64
    assert "0.011 nats with them" in wide.sure[0]
    assert "−0.167 ± 0.648 nats with them" in narrow.sure[0]
    assert "not known" in wide.sure[0]
    assert "more than 4 times away" in answer(case(width=8192)).sure[0]


def test_the_cost_is_that_of_the_command() -> None:
    told = answer(case(tokens=1e9))
    assert "--qk-norm none,head --optimizers adamw --peak-lr" in told.command
    rates = told.command.partition("--peak-lr ")[2].partition(" ")[0].split(",")
    assert told.trainings == 2 * len(rates) * int(told.command[-1])
    assert told.operations == 6 * (12 * 12 * 768**2) * 1e9 * told.trainings
    assert answer(case()).operations is None
    assert "--tokens" in answer(case()).cost


def says(monkeypatch: pytest.MonkeyPatch, *words: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["normscope", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_the_verb_answers_and_takes_no_placement_beside_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says(monkeypatch, "choose", "qk-norm", "--width", "512") in (0, None)
    told = " ".join(capsys.readouterr().out.split())
    for heading in ("What we would do", "The naive answer", "Not known", "What decides it"):
        assert heading in told
    assert "normscope compare FILE.py:FUNCTION --qk-norm none,head" in told
    assert "issue 5230" in told
    assert says(monkeypatch, "choose", "qk-norm", "--json", "--tokens", "5B") in (0, None)
    assert json.loads(capsys.readouterr().out)["trainings"] == 18
    assert says(monkeypatch, "choose", "qk-norm", "pre-ln") == 2
    assert "ask it alone" in capsys.readouterr().err
    assert says(monkeypatch, "choose", "qk-norms") == 2
