"""The study of real text: what it measures beside autograd by hand, what it makes again, and how its verdicts turn."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from normscope.errors import UserError
from normscope.tasks.translation import TRANSLATION, TranslationConfig, TranslationObjective, TranslationRunConfig
from normscope.theory.predict import predict
from normscope.theory.settings import RepeatedTokens
from normscope.train.device import seed_micro_batch
from normscope_studies.engine.deviation import Compared, mean_over_draws
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.figure_3.config import corpus_of
from normscope_studies.real_text import STUDY, findings
from normscope_studies.theory.simulation import setting_of

SMALL = replace(STUDY.scales["smoke"].config, width=32, ffn_width=48, blocks=(2,), max_tokens=128)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real-text")
    pieces = Pieces(folder)
    findings, page = run_study(STUDY, SMALL, pieces, command="normscope study real-text")
    return folder, findings, page, pieces


@pytest.mark.thorough
def test_page_and_data(found):
    folder, findings, page, pieces = found
    data = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert len(pieces.made) == 4
    assert {"gradients", "text", "tokens", "seeds"} <= data["conditions"].keys()
    assert [claim["verdict"] for claim in data["claims"]] == [claim.verdict for claim in findings.claims]
    assert len(data["curves"]["post-ln 2-2"]["encoder"]["q"]["measured"]) == 3
    html = page.read_text(encoding="utf-8")
    assert all(claim.verdict in html for claim in findings.claims)
    assert {path.name for path in folder.glob("*.svg")} == {"hidden_state.svg", "w2_gradients.svg"}


def test_what_is_there_is_not_measured_again(found):
    folder, first, _, _ = found
    pieces = Pieces(folder)
    again, _ = run_study(STUDY, SMALL, pieces, command="normscope study real-text")
    assert pieces.made == []
    assert again.claims == first.claims
    wider = Pieces(folder)
    run_study(STUDY, replace(SMALL, seeds=3), wider, command="normscope study real-text")
    assert wider.made == ["post-ln_2-2_seed-3", "pre-ln_2-2_seed-3"]


def test_a_piece_by_hand(found):
    """The gradient of the mean loss per token of the seed's batch, dropout as training draws it."""
    folder, *_ = found
    piece = json.loads((folder / "pieces" / "pre-ln_2-2_seed-2.json").read_text(encoding="utf-8"))["value"]
    corpus = corpus_of(SMALL.corpus, SMALL.toy_pairs)
    task = TranslationObjective(
        corpus, TranslationConfig(label_smoothing=0.1), max_tokens=128, seed=2, device=torch.device("cpu")
    )
    model = TRANSLATION.build(TranslationRunConfig(seed=2, model=SMALL.model("pre-ln", 2)), corpus.codec).train()
    batch = task.micro_batch(0)
    seed_micro_batch(2, 0)
    streams = []
    model.decoder.blocks[1].register_forward_hook(lambda _, __, x: streams.append(x))
    (task.loss_sums(model, batch)[0] / batch.target_tokens).backward()
    weights = [dict(sublayer.f.matrices()).get("ffn_out") for sublayer in model.decoder.sublayers()]
    norms = [float(linear.weight.grad.norm()) for linear in weights if linear is not None]
    assert piece["decoder"]["ffn_out"] == pytest.approx(norms, rel=1e-4)
    assert piece["decoder"]["q"][2] == pytest.approx(float(streams[0].detach().square().mean()), rel=1e-4)


def curves(off: float, scatter: float = 1e-4):
    """Measured 'off' above what was predicted, in the decoder alone."""

    def curve(factor: float, places: int) -> Compared:
        return mean_over_draws(factor * np.outer([1 - scatter, 1 + scatter], np.ones(places)), np.ones(places))

    return {
        ("pre-ln", 2): {
            kind: {"q": curve(factor, 3), "ffn_out": curve(factor, 2)}
            for kind, factor in (("encoder", 1.0), ("decoder", 1 + off))
        }
    }


@pytest.mark.parametrize(
    ("off", "verdict"),
    [(0.1, "reproduced"), (0.2, "undecided"), (-0.3, "undecided")],
)
def test_verdicts_turn(off, verdict):
    """Where the decoder is off, one stack speaks for it and one against."""
    corpus = corpus_of(SMALL.corpus, SMALL.toy_pairs)
    config = replace(SMALL, placements=("pre-ln",))
    made = findings(config, corpus, curves(off), fast=False)
    assert [claim.verdict for claim in made.claims] == [verdict, verdict]
    assert f"{100 * abs(off):.2f} % off" in made.claims[0].found


def test_two_seeds_that_differ_do_not_decide():
    config = replace(SMALL, placements=("pre-ln",))
    made = findings(config, corpus_of(SMALL.corpus, SMALL.toy_pairs), curves(0.1, scatter=0.05), fast=False)
    assert {claim.verdict for claim in made.claims} == {"undecided"}


def test_no_corpus():
    with pytest.raises(UserError, match="no corpus at"):
        STUDY.run(replace(SMALL, corpus="nowhere"), Pieces(folder=None))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": 1}, "seeds must be at least 2"),
        ({"blocks": ()}, "blocks: give one or more"),
        ({"placements": ("pre-ln", "pre-ln")}, "placements: give one or more different"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"placements": ("middle-ln",)}, "unknown placement"),
    ],
)
def test_what_cannot_be_measured(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **changes)


@pytest.mark.thorough
def test_what_the_text_repeats_is_what_the_prediction_needs(tmp_path):
    """With it the root mean square deviation of W2's gradients is small, dropout and all; without it, it is not."""
    config = replace(SMALL, width=128, ffn_width=256, seeds=6, max_tokens=512, dropout=0.3, placements=("post-ln",))
    data = STUDY.run(config, Pieces(tmp_path)).data["curves"]["post-ln 2-2"]
    corpus, without = corpus_of(config.corpus, config.toy_pairs), []
    for seed in range(1, config.seeds + 1):
        task = TranslationObjective(
            corpus, TranslationConfig(label_smoothing=0.1), max_tokens=512, seed=seed, device=torch.device("cpu")
        )
        vocabulary = len(corpus.target.vocabulary)
        model = config.model("post-ln", 2)
        setting = setting_of([task.micro_batch(0)], model, vocabulary=vocabulary, label_smoothing=0.1)
        without.append(predict("post-ln", replace(setting, source=RepeatedTokens(), target=RepeatedTokens())))
    for kind in ("encoder", "decoder"):
        curve = data[kind]["ffn_out"]
        measured = np.asarray(curve["measured"])
        alone = np.mean([one[kind].gradient_norm["ffn_out"] for one in without], axis=0)
        assert np.sqrt(np.square(measured / curve["predicted"] - 1).mean()) < 0.12
        assert np.sqrt(np.square(measured / alone - 1).mean()) > 0.5
        assert np.abs(np.asarray(data[kind]["q"]["measured"]) / data[kind]["q"]["predicted"] - 1).max() < 0.05
