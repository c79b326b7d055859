"""The study of probes: labels, where norms stand, what is read of a model, made-up readings, the smallest scale."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from normscope.adapters.scikit_learn import probe_accuracy
from normscope.data.toy.language import toy_sentences, toy_words
from normscope.evidence.estimates import estimate
from normscope.model import LanguageModel
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.probes.claims import PlacementReading, TextReadings, claims, differs
from normscope_studies.probes.measure import around_norms, loss_nats, passed, probed, read, without_block
from normscope_studies.probes.study import SCALES, STUDY, model_config
from normscope_studies.probes.texts import NONE, ProbesConfig, ProbeText, documents, grammar, packed

pytest.importorskip("sklearn", reason="needs scikit-learn (the `probes` extra)")

SMOKE: ProbesConfig = SCALES["smoke"].config
CONFIG = replace(SMOKE, width=8, ffn_width=8, train_sentences=40)


@pytest.fixture(scope="module")
def text() -> ProbeText:
    return grammar(CONFIG)


def model_of(placement: str, text: ProbeText) -> LanguageModel:
    torch.manual_seed(1)
    return LanguageModel(model_config(CONFIG, placement), text.vocabulary).eval()


def test_labels_of_the_grammar_are_of_the_word_that_is_read(text: ProbeText) -> None:
    words = [word for sentence in toy_sentences(CONFIG.probe_sequences, seed=1, split="test") for word in sentence]
    ids = np.concatenate([one[:-1] for one in text.probed])
    begins = ids == 0
    assert begins.sum() == CONFIG.probe_sequences
    assert [toy_words()[0][i - 1] for i in ids[~begins]] == [word.text for word in words]
    for name, of in (("part of speech", "part"), ("number", "number"), ("gender", "gender"), ("case", "case")):
        labels = text.labels[name]
        assert (labels[begins] == NONE).all()
        pairs = {(getattr(word, of), label) for word, label in zip(words, labels[~begins].tolist(), strict=True)}
        # One class for each value, and none where the value is empty.
        assert len(pairs) == len({value for value, _ in pairs}) == len({label for _, label in pairs})
        assert all((label == NONE) == (value == "") for value, label in pairs)


def test_a_verb_is_asked_only_of_a_subject_behind_it(text: ProbeText) -> None:
    sentences = toy_sentences(CONFIG.probe_sequences, seed=1, split="test")
    labels = iter(text.labels["its verb"].tolist())
    asked: dict[int, set[str]] = {}
    for sentence in sentences:
        assert next(labels) == NONE
        for place, word in enumerate(sentence):
            label = next(labels)
            if label != NONE:
                assert word.case == "nominative"
                assert word.verb in [other.text for other in sentence[:place]]
                asked.setdefault(label, set()).add(word.verb)
    assert len(asked) > 3
    assert all(len(verbs) == 1 for verbs in asked.values())


def test_labels_of_documents_are_of_neighbours_positions_and_counts() -> None:
    found = documents(CONFIG)
    current = np.concatenate([ids[:-1] for ids in found.probed])
    following = np.concatenate([ids[1:] for ids in found.probed])
    assert {len(ids) for ids in found.probed} == {CONFIG.sequence_length + 1}
    kept = found.labels["current token"] != NONE
    tokens, counts = np.unique(current, return_counts=True)
    assert set(current[kept]) <= set(tokens[np.sort(counts)[-CONFIG.frequent] <= counts])
    # The next token's class is its own as a current one elsewhere: both name a token.
    for name, values in (("current token", current), ("next token", following)):
        labels = found.labels[name]
        assert all(len(set(values[labels == one])) == 1 for one in range(CONFIG.frequent))
    shifted = found.labels["previous token"].reshape(-1, CONFIG.sequence_length)
    assert (shifted[:, 0] == NONE).all()
    before = current.reshape(-1, CONFIG.sequence_length)[:, :-1]
    assert all(len(set(before[shifted[:, 1:] == one])) == 1 for one in range(CONFIG.frequent))
    assert np.bincount(found.labels["position"]).tolist() == [len(current) // 8] * 8
    counted = np.bincount(np.concatenate([ids[:-1] for ids in found.train]), minlength=found.vocabulary)
    highest = [counted[current[found.labels["frequency"] == one]].max() for one in range(5)]
    assert highest == sorted(highest)


@pytest.mark.parametrize(
    ("placement", "norm_gives_the_stream"),
    [("post-ln", True), ("residual", True), ("pre-ln", False), ("sub-ln", False)],
)
def test_the_stream_is_found_on_either_side_of_its_norm(
    text: ProbeText, placement: str, norm_gives_the_stream: bool
) -> None:
    model = model_of(placement, text)
    tokens_N, layout = packed(text.probed[:5])
    found = passed(model, tokens_N, layout)
    assert len(found.states) == CONFIG.blocks + 1
    for state, around in zip(found.states[1:], around_norms(model.decoder, found), strict=True):
        stream = model.decoder.placement.hidden(state)
        assert (around.after_ND if norm_gives_the_stream else around.before_ND) is stream
        # Gains are 1 and shifts 0 at first.
        expected = functional.layer_norm(around.before_ND, (CONFIG.width,), eps=model.decoder.placement.norm_epsilon)
        assert torch.equal(around.after_ND, expected)


def test_a_stream_that_meets_no_norm_is_refused(text: ProbeText) -> None:
    model = model_of("reordered", text)
    with pytest.raises(ValueError, match="reordered meets no norm after block 1"):
        around_norms(model.decoder, passed(model, *packed(text.probed[:5])))


def test_the_lens_at_the_end_is_the_loss_and_a_block_that_adds_nothing_is_worth_nothing(text: ProbeText) -> None:
    model = model_of("pre-ln", text)
    with torch.no_grad():
        for sublayer in model.decoder.blocks[1].sublayers():
            for _, matrix in sublayer.f.matrices():
                matrix.weight.zero_()
    found = read(model, text, probe_accuracy)
    loss = loss_nats(model, text.probed)
    assert found["lens_nats"][-1] == pytest.approx(loss, rel=1e-6)
    assert found["lens_nats"][1] == pytest.approx(loss, rel=1e-6)
    assert found["lens_nats"][0] != pytest.approx(loss, rel=1e-3)
    assert found["left_out_nats"][1] == pytest.approx(0, abs=1e-6)
    with without_block(model.decoder, 0):
        shorter = loss_nats(model, text.probed)
    assert found["left_out_nats"][0] == pytest.approx(shorter - loss, rel=1e-6)
    assert len(model.decoder.blocks) == CONFIG.blocks
    # The block adds nothing, so the streams on both its sides are one.
    assert found["cka"][1][2] == pytest.approx(1, abs=1e-9)
    assert found["accuracy"]["case"][1] == found["accuracy"]["case"][2]
    # The word alone decides its control label: one that was read before is known by heart from the embedding.
    assert found["accuracy"]["position"][0][0] > found["control"]["position"][0][0]


def test_a_training_ends_at_the_first_validation_below_the_target(text: ProbeText) -> None:
    settings: dict[str, Any] = {
        "seed": 1, "peak_lr": 1e-2, "warmup_updates": 1, "batch_sequences": 8, "validate_every": 2, "most_updates": 12,
    }  # fmt: skip
    config = model_config(CONFIG, "pre-ln")

    def no_probe(*_: object) -> float:
        """What is read of the models is not asked here."""
        return 0.5

    whole = probed(config, text, no_probe, target_nats=0.1, **settings)
    assert (whole["update"], whole["reached"]) == (12, False)
    ended = probed(config, text, no_probe, target_nats=(whole["valid_nats"] + 6.1) / 2, **settings)
    assert ended["reached"]
    assert 0 < ended["update"] < 12
    assert ended["valid_nats"] > whole["valid_nats"]


def made_up(offset: float, norm: float, worth: float) -> PlacementReading:
    """Three seeds that differ by a little."""

    def one(noise: float) -> dict[str, Any]:
        accuracy = [[0.9, 0.9], *([[0.8 + offset + noise, 0.8 + offset + norm + noise]] * 2)]
        return {
            "reached": True, "accuracy": {"case": accuracy}, "control": {"case": [[0.7, 0.7]] * 3},
            "cka": [[1.0, 0.5, 0.4], [0.5, 1.0, 0.6 - offset + noise], [0.4, 0.6 - offset + noise, 1.0]],
            "lens_nats": [5.0, 4.0 - worth + noise, 3.0], "left_out_nats": [1.0, worth + noise],
            "anisotropy": [0.1, 0.2 + noise, 0.3],
        }  # fmt: skip

    return PlacementReading(placement="pre-ln", seeds=[one(noise) for noise in (-0.001, 0.0, 0.001)])


def test_verdicts_are_those_of_the_readings() -> None:
    readings = {
        "post-ln": made_up(0.1, 0.0, 0.9),
        "pre-ln": made_up(0.0, 0.05, 0.2),
        "peri-ln": made_up(0.0, 0.05, 0.2),
    }
    found = TextReadings(text="grammar", target_nats=3.0, majority={"case": 0.5}, readings=readings)
    for name, reading in readings.items():
        readings[name] = replace(reading, placement=name)
    said = {claim.name: claim for claim in claims(ProbesConfig(), [found])}
    # After the norm Post-LN reads 0.9, the others 0.85.
    assert said["the placement changes what probes read, grammar"].conditions == "Post-LN, case; not Peri-LN, case"
    assert (
        said["before and after the norm probes read differently, grammar"].conditions
        == "Pre-LN, case and Peri-LN, case; not Post-LN, case"
    )
    assert said["probes read the model"].verdict == "reproduced"
    assert said["Pre-LN's last block is worth less"].verdict == "reproduced"
    assert said["the output is ready earlier in Pre-LN"].verdict == "contradicted"
    assert said["neighbouring blocks are more alike in Pre-LN"].verdict == "reproduced"


@pytest.mark.parametrize(
    ("values", "answer"),
    [([0.1, 0.11, 0.09], True), ([-0.1, -0.11, -0.09], True), ([0.0, 0.01, -0.01], False), ([0.0, 0.2, 0.1], None)],
)
def test_a_difference_is_decided_by_its_interval(values: list[float], answer: bool | None) -> None:
    assert differs(estimate(values), 0.05) is answer


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"texts": ("poems",)}, "poems is not one; choose from grammar, documents"),
        ({"placements": ("pre-ln", "peri-ln")}, "placements must have post-ln among them"),
        ({"placements": ("pre-ln", "post-ln", "t-fixup")}, "t-fixup is not defined for a decoder alone"),
        ({"grammar_target_nats": 0.0}, "grammar_target_nats must be positive"),
        ({"most_updates": 15}, "must be a multiple of validate_every"),
        ({"probe_sequences": 10}, "probe_sequences must be at least 30"),
    ],
)
def test_values_that_mean_nothing_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProbesConfig(**changes)


def test_the_smallest_scale_reads_everything_once(tmp_path: Path) -> None:
    config = replace(SMOKE, seeds=1, width=8, ffn_width=8, probe_sequences=30, train_sentences=40)
    pieces = Pieces(tmp_path)
    findings, page = run_study(STUDY, config, pieces, command="normscope study probes", scale="smoke")
    assert len(pieces.made) == 4
    assert set(findings.data["texts"]) == {"grammar", "documents"}
    assert "what linear probes read" in page.read_text(encoding="utf-8")
    again = Pieces(tmp_path)
    run_study(STUDY, config, again, command="normscope study probes", scale="smoke")
    assert again.made == []
