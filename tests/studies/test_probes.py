"""Linear probes: what is asked of words, what is read of a model, made-up readings, and the
smallest scale.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import in_process
from normscope.data.lexicon import CASES, NOUNS
from normscope.data.toy import toy_pairs
from normscope.model import Layout
from normscope.tasks.translation import TRANSLATION
from normscope_studies.engine import trainings
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.probes.claims import PlacementReading, claims
from normscope_studies.probes.config import SCALES, ProbesConfig
from normscope_studies.probes.measure import _read, _streams
from normscope_studies.probes.study import STUDY, tables
from normscope_studies.probes.words import (
    NONE,
    case_of,
    control,
    probe_sentences,
    properties,
)

pytest.importorskip("sklearn", reason="needs scikit-learn (the `probes` extra)")

SMOKE: ProbesConfig = SCALES["smoke"]
SENTENCES = probe_sentences(200)


@pytest.mark.parametrize(
    ("sentence", "cases"),
    [
        ("er sieht den alten mann .", {"mann": "accusative"}),
        ("dem alten hund folgt der mann .", {"hund": "dative", "mann": "nominative"}),
        ("ein mann schläft im garten .", {"mann": "nominative", "garten": "dative"}),
        ("mit meinem bruder sucht sie diesen brief .", {"bruder": "dative", "brief": "accusative"}),
        # Feminine and neuter nouns, plurals, and nouns that are their own plural are not asked.
        ("die frau sieht das kind und den kuchen .", {}),
        ("er dankt den männern .", {}),
    ],
)
def test_a_noun_s_case_is_told_by_the_words_before_it(sentence: str, cases: dict[str, str]) -> None:
    words = sentence.split()
    found = {word: case_of(words, place) for place, word in enumerate(words)}
    assert {word: CASES[case] for word, case in found.items() if case != NONE} == cases


def test_a_nominative_stands_before_an_accusative_in_english() -> None:
    """Whichever comes first in German: in English a subject always precedes its object."""
    english = {noun.singular: noun.en for noun in NOUNS}
    fronted = 0
    for german, translated in toy_pairs(1500, seed=1, split="test"):
        words = german.split()
        cases = {
            CASES[case_of(words, place)]: word
            for place, word in enumerate(words)
            if case_of(words, place) != NONE
        }
        one_clause = "," not in words and not {"und", "aber"} & set(words)
        if not one_clause or not {"nominative", "accusative"} <= set(cases):
            continue
        subject, found = cases["nominative"], cases["accusative"]
        if subject == found:
            continue
        # Between blanks: "man" stands in "manuscript" too.
        places = [f" {translated}".find(f" {english[noun]} ") for noun in (subject, found)]
        assert -1 < places[0] < places[1], german
        fronted += words.index(found) < words.index(subject)
    assert fronted


def test_properties_are_of_the_word_its_neighbour_and_its_place() -> None:
    found = properties(SENTENCES, 5)
    spoken = [word for words in SENTENCES for word in (*words, "")]
    assert {len(classes) for classes in found.values()} == {len(spoken)}
    counts = Counter(word for word in spoken if word)
    kept = {word for word, _ in counts.most_common(5)}
    places = np.concatenate([np.arange(len(words) + 1) for words in SENTENCES])
    for number, word in enumerate(spoken):
        if not word:
            assert {found[name][number] for name in found} == {NONE}
            continue
        assert (found["word"][number] != NONE) == (word in kept)
        before = spoken[number - 1] if places[number] else ""
        assert (found["previous word"][number] != NONE) == (before in kept)
        if before in kept:
            assert found["previous word"][number] == found["word"][number - 1]
        assert found["position"][number] == (places[number] if places[number] < 10 else NONE)
    assert len(set(found["word"])) == 6


def test_the_control_task_is_told_by_the_word_alone_and_is_as_uneven() -> None:
    spoken = [word for words in SENTENCES for word in (*words, "")]
    position = properties(SENTENCES, 5)["position"]
    made = control(position, spoken)
    assert ((made == NONE) == (position == NONE)).all()
    by_word: dict[str, set[int]] = {}
    for word, one in zip(spoken, made.tolist(), strict=True):
        by_word.setdefault(word, set()).add(one)
    assert all(len(classes - {NONE}) <= 1 for classes in by_word.values())
    assert set(made) == set(position)


def test_a_probe_is_carried_to_the_next_depth_without_being_fitted_again() -> None:
    """A stream that a block leaves as it is loses nothing; one that is turned loses what it had."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((900, 6))
    classes = (x @ rng.standard_normal((6, 4))).argmax(1)
    held_out = np.arange(900) % 3 == 0
    turned = x[:, ::-1]
    words = [str(number) for number in range(900)]
    found = _read([x, x, turned], classes, words, held_out, controlled=False)
    assert found["accuracy"][0] > 0.9
    assert found["accuracy"] == [found["accuracy"][0]] * 2 + [
        pytest.approx(found["accuracy"][0], abs=0.02)
    ]
    assert found["carried"][0] == found["accuracy"][1]
    assert found["carried"][1] < 0.6
    assert found["control"] is None
    assert found["words"] == 900
    commonest = np.bincount(classes[held_out]).max() / held_out.sum()
    assert found["majority"] == pytest.approx(commonest)


def test_what_is_held_out_is_not_fitted_to() -> None:
    """Of classes that are noise, each row is known by heart where it was fitted to."""
    rng = np.random.default_rng(0)
    x, classes = rng.standard_normal((60, 80)), rng.integers(0, 2, 60)
    found = _read([x], classes, [""] * 60, np.arange(60) % 3 == 0, controlled=False)
    # 20 rows: half of them right, within three standard errors.
    assert found["accuracy"][0] < 0.5 + 3 * 0.5 / 20**0.5


def test_streams_are_of_size_1_from_the_embedding_on() -> None:
    base = replace(SMOKE, blocks=3).trainings.training(20, 0.0)
    corpus = TRANSLATION.open(base)
    model = TRANSLATION.build(base, corpus.codec).eval()
    ids = corpus.codec.source.encode([" ".join(words) for words in SENTENCES[:4]])
    streams = _streams(model, ids)
    assert len(streams) == 4
    for x in streams:
        assert x.shape == (sum(map(len, ids)), SMOKE.width)
        assert x.mean(-1) == pytest.approx(0, abs=1e-6)
        assert np.square(x).mean(-1) == pytest.approx(1, abs=2e-3)
    # The last one is what the encoder's final norm reads: the memory up to that norm's gain of 1.
    layout = Layout(torch.tensor([len(one) for one in ids]))
    with torch.no_grad():
        memory = model.encode(torch.from_numpy(np.concatenate(ids)), layout)
    assert streams[-1] == pytest.approx(memory.numpy(), abs=1e-5)


def reading(placement: str, deep: float, shortfall: float, nats: float = 2.0) -> PlacementReading:
    """Three seeds that differ by a little; deep: accuracy behind each block."""

    def one(noise: float) -> dict[str, Any]:
        own = {
            "accuracy": [0.9, deep + noise, deep + noise],
            "carried": [deep + noise - shortfall, deep + 2 * noise - shortfall],
            "control": [0.3, 0.3, 0.3],
            "majority": 0.5,
            "words": 100,
        }
        return {"position": own, "word": own | {"control": None}}

    drawn = {"accuracy": [0.9, 0.6, 0.6]}
    return PlacementReading(
        placement=placement,
        trained=[one(noise) for noise in (-0.001, 0.0, 0.001)],
        untrained=[{"position": drawn, "word": drawn}] * 3,
        nats=[nats, nats + 0.01, nats - 0.01],
    )


FOUND = {
    "post-ln": reading("post-ln", 0.85, 0.3),
    "pre-ln": reading("pre-ln", 0.75, 0.1),
    "peri-ln": reading("peri-ln", 0.755, 0.1),
}


def said(found: dict[str, PlacementReading]) -> dict[str, Any]:
    config = replace(SMOKE, seeds=3, placements=tuple(found))
    return {one.name: one for one in claims(config, found, 4.6)}


def test_verdicts_are_those_of_the_readings() -> None:
    made = said(FOUND)
    differs = made["the placement changes what probes read"]
    assert differs.conditions == (
        "Post-LN, position and Post-LN, word; not Peri-LN, position and Peri-LN, word"
    )
    assert "Post-LN, position, 0.100 ± 0.000" in differs.found
    dilution = made["Pre-LN's deep blocks change less what a probe reads"]
    assert dilution.verdict == "reproduced"
    # The upper half of two blocks is the second: 0.1 and 0.3, less the same noise in both.
    noise = np.array([-0.001, 0.0, 0.001])
    half = noise.std(ddof=1) / np.sqrt(3) * stats.t.ppf(0.975, 2)
    assert "position: −0.200 ± 0.000" in dilution.found
    assert f"position 0.100 ± {half:.3f} beside 0.300 ± {half:.3f}" in dilution.found
    assert made["training puts there what probes read"].verdict == "reproduced"
    words = made["probes read more than the words alone tell"]
    assert words.verdict == "reproduced"
    assert "word:" not in words.found
    assert "Corrected by Holm over 3 comparisons" in words.found


def test_blocks_that_change_more_contradict_dilution() -> None:
    made = said(FOUND | {"pre-ln": reading("pre-ln", 0.75, 0.4)})
    assert made["Pre-LN's deep blocks change less what a probe reads"].verdict == "contradicted"


def test_what_has_not_learned_decides_nothing() -> None:
    lost = said(FOUND | {"pre-ln": reading("pre-ln", 0.75, 0.1, nats=4.59)})
    assert lost["the placement changes what probes read"].verdict == "undecided"
    assert lost["Pre-LN's deep blocks change less what a probe reads"].verdict == "undecided"
    assert (
        "Pre-LN" not in lost["training puts there what probes read"].found.partition("did not")[0]
    )


def test_the_table_has_a_row_for_each_placement_and_property() -> None:
    (made,) = tables(FOUND)
    assert [row[:2] for row in made.rows[:2]] == [["Post-LN", "position"], ["Post-LN", "word"]]
    assert [row[6] for row in made.rows[:2]] == ["0.300 ± 0.000", "none"]
    assert len(made.rows) == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"placements": ("pre-ln", "peri-ln")}, "post=post-ln must be among the placements"),
        ({"post": "pre-ln"}, "base and post must be two placements"),
        ({"probe_sentences": 10}, "probe_sentences must be at least 30"),
        ({"accuracy_edge": 0.0}, "accuracy_edge must be positive"),
        ({"warmup_share": 1.0}, "share of post-ln must lie in"),
        ({"peak_lrs": (2e-3, 1e-3)}, "peak_lrs must be positive and rise"),
    ],
)
def test_values_that_mean_nothing_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProbesConfig(**changes)


def test_the_smallest_scale_probes_each_model_trained_and_as_it_was_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainings, "run_cells", in_process.run_cells)
    config = replace(SMOKE, seeds=1, probe_sentences=60)
    pieces = Pieces(tmp_path)
    findings, page = run_study(
        STUDY, config, pieces, command="normscope study probes", scale="smoke"
    )
    assert (
        sorted(name.partition("/")[0] for name in pieces.made)
        == ["trained"] * 2 + ["untrained"] * 2
    )
    for row in findings.data["placements"]:
        for name, one in row["properties"].items():
            assert one["accuracy"].shape == one["untrained"].shape == (1, SMOKE.blocks + 1)
            assert one["changed"].shape == (1, SMOKE.blocks)
            assert (one["control"] is None) == (name == "word")
        # Twenty updates at this rate have moved the embedding.
        word = row["properties"]["previous word"]
        assert (word["accuracy"] != word["untrained"]).any()
    assert "What linear probes read" in page.read_text(encoding="utf-8")
    again = Pieces(tmp_path)
    run_study(STUDY, config, again, command="normscope study probes", scale="smoke")
    assert again.made == []
