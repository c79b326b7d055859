"""The change by one update through whole stacks: beside updates that were made, closed forms, and
published orders.
"""

from dataclasses import replace

import numpy as np
import pytest

from changes_drawn import changes_of
from draws import mean_and_error
from normscope.theory.moments import Unpredictable
from normscope.theory.predict import ModelSetting, Update, predict

WIDTH, BLOCKS, TOKENS, DRAWS = 96, 3, 8, 10
MODEL = ModelSetting(blocks=BLOCKS, width=WIDTH, ffn_width=WIDTH, tokens=TOKENS, vocabulary=500)
PLACEMENTS = ("post-ln", "pre-ln", "sub-ln", "residual", "rezero", "layer-scale")
"""With a norm within F, two streams, and gates that are 0 or small."""
UPDATES = ("sgd", "adam", "muon")


def test_what_holds_of_every_update_that_is_made():
    """Of the oracle: the embedding stays, and so does what the first sub-layer reads; the loss
    falls.
    """
    model = ModelSetting(blocks=2, width=32, ffn_width=32, tokens=4, vocabulary=50)
    draws = changes_of("pre-ln", model, UPDATES, 2)
    for one in (one for draw in draws for one in draw.values()):
        assert (one["stream"][0], one["amplified"][0]) == (0.0, 0.0)
        assert one["own"][0] == one["total"][0] > 0
        assert one["loss"] < 0
        assert (len(one["own"]), len(one["stream"])) == (4, 3)
        assert -one["output"] / 3 <= one["output_two"] <= one["output"]
    # Attention's first step under Muon keeps lengths in the tokens' span. One gradient for all
    # tokens is of rank 1, and tells the tokens' mean alone, which divides by 4; 4 vectors of 32 are
    # not quite orthogonal.
    sizes = [draw["muon"]["own"][0] for draw in draws]
    assert np.mean(sizes) == pytest.approx(0.04 * 32 / 4, rel=0.15)


def change(placement, model=MODEL, **update):
    found = predict(placement, model, update=Update(**update))[model.stack].change
    assert found is not None
    return found


def interleaved(by_kind: dict[str, np.ndarray]) -> np.ndarray:
    """Sub-layer after sub-layer."""
    return np.stack([by_kind["attention"], by_kind["feed_forward"]], 1).ravel()


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_as_measured(placement):
    """Within three and a half standard errors, and what widths of 96 leave out."""
    model = ModelSetting(blocks=BLOCKS, width=WIDTH, ffn_width=WIDTH, tokens=TOKENS, vocabulary=500)
    measured = changes_of(placement, model, UPDATES, DRAWS)
    for update in UPDATES:
        found = change(placement, optimizer=update, rate=1.0)
        curves = {
            "own": interleaved(found.own),
            "amplified": interleaved(found.amplified),
            "total": interleaved(found.total),
            "stream": found.stream,
            "output": np.array(found.output),
            "output_two": np.array(found.output_two),
            "loss": np.array(found.loss),
        }
        for name, predicted in curves.items():
            mean, error = mean_and_error([draw[update][name] for draw in measured])
            # ReZero's gates hang on inner products of two random vectors, whose squares scatter by
            # 140 %.
            assert np.all(np.abs(predicted - mean) <= 3.5 * error + 0.08 * np.abs(mean)), (
                f"{update}, {name}: {predicted / np.maximum(mean, 1e-300)}"
            )


def test_the_loss_falls_by_the_squared_gradient():
    """SGD, to first order: -η ‖∂L/∂W‖² over all matrices that it moves, which the way back predicts
    on its own.
    """
    for placement in ("pre-ln", "post-ln", "peri-ln", "residual"):
        stack = predict(placement, MODEL, update=Update(optimizer="sgd", rate=0.1))["encoder"]
        squares = sum(
            float((norms**2).sum())
            for name, norms in stack.gradient_norm.items()
            if name != "output"
        )
        assert stack.change.loss == pytest.approx(-0.1 * squares, rel=0.02)


def test_optimisers_with_one_first_step():
    adam, sgd = change("pre-ln", optimizer="adam"), change("pre-ln", optimizer="sgd")
    for name in ("adamw", "lion"):
        assert change("pre-ln", optimizer=name).output == adam.output
    assert change("pre-ln", optimizer="radam").output == sgd.output
    assert change("pre-ln", optimizer="adam", rate=2e-3).output == pytest.approx(4 * adam.output)
    assert change("pre-ln", optimizer="adam", rate=2e-3).loss == pytest.approx(2 * adam.loss)


def output_changes(placement, depths, update):
    """E‖δy‖² / d of the output by one update for each depth, infinitely wide."""
    predicted = [
        predict(placement, replace(MODEL, blocks=depth), scatter=False, update=update)
        for depth in depths
    ]
    return [stacks["encoder"].change.output for stacks in predicted]


def test_random_updates_have_the_published_orders():
    """Liu et al. 2020: O(N) of Post-LN, O(log N) of Pre-LN and Admin. Wang et al. 2022: O(1) of
    DeepNorm.
    """
    random, depths = Update(optimizer="random", rate=1e-3), (12, 24, 48, 96)
    values = {
        name: np.array(output_changes(name, depths, random))
        for name in ("post-ln", "pre-ln", "admin", "deepnorm")
    }
    assert values["post-ln"][1:] / values["post-ln"][:-1] == pytest.approx(2.0, rel=0.1)
    for name in ("pre-ln", "admin"):
        steps = np.diff(values[name])
        assert steps[1:] == pytest.approx(steps[:-1], rel=0.08), name
    assert values["deepnorm"] == pytest.approx(values["deepnorm"][0], rel=0.01)


def test_one_random_step_in_closed_form():
    """One token under Post-LN: attention moves by 1 and feed-forward by ½ of that twice over; LN
    divides by its input.

    W_V's output gains 1 of 2 in all; W2 reads ½, and W1 adds ½ through ReLU; the skip keeps what
    came before.
    """
    model = ModelSetting(blocks=1, width=64, ffn_width=64, tokens=1)
    found = predict("post-ln", model, scatter=False, update=Update(optimizer="random", rate=1.0))[
        "encoder"
    ].change
    after_attention = 64 / 2
    moved = 64 * (0.5 + 0.5) + 0.5 * after_attention
    assert found.output == pytest.approx((after_attention + moved) / 1.5, rel=1e-4)


def test_real_updates_add_up_where_random_ones_do_not():
    """All of Post-LN's sub-layers move down the loss together: the cube of the depth, whichever the
    optimiser.
    """
    for update in ("sgd", "muon"):
        shallow, deep = output_changes("post-ln", (16, 32), Update(optimizer=update))
        assert np.log2(deep / shallow) == pytest.approx(3.0, abs=0.2)


@pytest.mark.parametrize(
    ("placement", "changes", "message"),
    [
        ("pre-ln", {"stack": "encoder-decoder"}, "through one stack"),
        ("pre-ln", {"sequences": 2}, "by one sequence"),
        ("pre-ln", {"dropout": 0.1}, "without dropout"),
        ("pre-ln", {"norm": "dyt"}, "not through dyt"),
        ("attn-res", {}, "a query that the first update moves"),
        ("pre-ln", {"stack": "decoder", "tokens": 65}, "token by token, up to 64, got 65"),
    ],
)
def test_where_theory_stops(placement, changes, message):
    model = ModelSetting(**{"blocks": 2, "width": 32, "ffn_width": 32, "tokens": 4, **changes})
    with pytest.raises(Unpredictable, match=message):
        predict(placement, model, update=Update())


@pytest.mark.parametrize("asked", [{"optimizer": "adagrad"}, {"rate": 0.0}, {"rate": float("inf")}])
def test_no_such_update(asked):
    with pytest.raises(ValueError, match="must be"):
        Update(**asked)
