"""Every rule of a transplant broken once: the proof that is built in finds it, and the model is as
it was.
"""

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor, nn

import normscope
from normscope.placement import Placement
from normscope.transplant import placed, plan, surgery
from normscope.transplant.following import Following
from normscope.transplant.program import Program, Run, programs
from transplant.hand_written import GPT, ids
from transplant.test_refused import refused

Patch = Callable[[pytest.MonkeyPatch], None]


def with_programs(made: Callable[..., list[Program]]) -> Patch:
    return lambda patch: patch.setattr(plan, "programs", made)


def changed(change: Callable[[list[Program]], list[Program]]) -> Patch:
    """With other programs than the formula's."""
    return with_programs(lambda *args, **kwargs: change(programs(*args, **kwargs)))


def factors(change: Callable[[float, int], float]) -> Patch:
    """Every number that the formula multiplies with or divides by changed, by the block's
    number.
    """

    def step(one: Any, block: int) -> Any:
        if one.function not in (operator.mul, operator.truediv):
            return one
        return replace(
            one,
            arguments=tuple(change(a, block) if isinstance(a, float) else a for a in one.arguments),
        )

    def all_of(made: list[Program]) -> list[Program]:
        return [
            replace(
                one, steps=tuple(tuple(step(some, block) for some in piece) for piece in one.steps)
            )
            for block, one in enumerate(made, 1)
        ]

    return changed(all_of)


def joined(change: Callable[[Tensor], Tensor]) -> Patch:
    join = Run.join
    return lambda patch: patch.setattr(Run, "join", lambda self, branch: join(self, change(branch)))


def deeper(placement: Placement, kinds: Any, **given: bool) -> list[Program]:
    """With the numbers of a stack of one more block."""
    stack = replace(placement.stack, encoder_blocks=placement.stack.encoder_blocks + 1)
    made = programs(type(placement)(stack), kinds, **given)
    return [*made[:-2], made[-1]]


def norms_stay(patch: pytest.MonkeyPatch) -> None:
    applied = dict.fromkeys(("norm", "inner norm"), lambda original: original.forward)
    patch.setattr(placed, "_FORWARDS", {**placed._FORWARDS, **applied})


def final_norm(kept: bool) -> Patch:
    return lambda patch: patch.setattr(plan, "_keeps_final", lambda *args: kept)


def norms_of(made: Callable[[int], nn.Module]) -> Patch:
    return lambda patch: patch.setattr(surgery, "_template", lambda *args: made)


def no_start(
    placement: Placement, kinds: Any, *, given_start: bool, given_finish: bool
) -> list[Program]:
    """As where the model norms its embedding by itself, which this one does not."""
    return programs(
        placement, kinds, given_start=given_start or given_finish, given_finish=given_finish
    )


RULES: dict[str, tuple[Patch, tuple[str, ...]]] = {
    "old norms do nothing": (norms_stay, ("post-ln", "peri-ln", "rezero")),
    "F reads what the formula gives it": (
        lambda patch: patch.setattr(Following, "_read_as", lambda self, place, moves: place),
        ("peri-ln", "lns", "residual"),
    ),
    "F's output joins": (joined(lambda branch: 0 * branch), ("peri-ln", "post-ln")),
    "it joins as it is": (joined(lambda branch: 1.01 * branch), ("post-ln", "deepnorm", "lns")),
    "blocks are in order": (changed(lambda made: [made[0], *made[:-2], made[-1]]), ("lns",)),
    "numbers are those of the depth": (with_programs(deeper), ("deepnorm", "keel")),
    "numbers follow the depth": (
        factors(lambda x, block: x * (0.95 + 0.05 * block)),
        ("deepnorm", "keel", "lns"),
    ),
    "numbers have their power": (factors(lambda x, block: x * x), ("deepnorm", "keel", "lns")),
    "a final norm goes": (final_norm(True), ("post-ln", "deepnorm", "rezero")),
    "a final norm stays": (final_norm(False), ("lns", "peri-ln", "sandwich")),
    "the embedding is normed": (with_programs(no_start), ("peri-ln",)),
    "norms are of the model's kind": (norms_of(nn.RMSNorm), ("peri-ln", "sandwich")),
    "norms have the model's ε": (
        norms_of(lambda width: nn.LayerNorm(width, eps=1e-3)),
        ("peri-ln", "sandwich"),
    ),
    "streams are told apart": (
        lambda patch: patch.setattr(placed, "_unpacked", lambda entered, count: (entered,) * count),
        ("residual", "attn-res"),
    ),
}


@pytest.mark.parametrize(
    ("rule", "target"),
    [
        pytest.param(rule, target, marks=[pytest.mark.thorough] if number else [])
        for rule, (_, targets) in RULES.items()
        for number, target in enumerate(targets)
    ],
)
def test_a_broken_rule_is_found(rule: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placed, "_MADE", {})
    RULES[rule][0](monkeypatch)
    assert "after the transplant" in refused(GPT(blocks=4), target)


def test_a_norm_after_post_ln_stays_where_nothing_changes() -> None:
    """As `nn.Transformer` has it: X → X leaves what the placement would not ask for."""
    x = ids().unsqueeze(-1).expand(-1, -1, 32) / 17.0
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, nn.LayerNorm(32), enable_nested_tensor=False)
    before = model(x)
    normscope.transplant(model, "post-ln", inputs=x, initialise="keep")
    assert model.transplanted.change == 0.0
    assert (model(x) == before).all()
