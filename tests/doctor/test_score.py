"""How many sub-layers of all models get their right placement, and whether any gets a wrong one
without doubt.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from doctor.corpus import DECODER, ENCODER
from doctor.corpus_x_transformers import ODD, WITHOUT_SUMS
from doctor.looked import EVERY, found_in, stacks_of
from doctor.scrambled import scrambled
from normscope.doctor import Stack, Sublayer, find_stacks
from normscope.placement import registered
from placement.expected import expected

pytestmark = pytest.mark.sampled(one_in=3)


@dataclass
class Score:
    """Counts of sub-layers."""

    exact: int = 0
    """Under the name that the model's maker gives it."""
    equal: int = 0
    """Under the name of a placement with the same formula here, the true one named beside it."""
    wrong_unsure: list[str] = field(default_factory=list)
    """Not found, or under another name with the doubt said."""
    wrong_sure: list[str] = field(default_factory=list)

    @property
    def share_right(self) -> float:
        return (self.exact + self.equal) / (
            self.exact + self.equal + len(self.wrong_unsure) + len(self.wrong_sure)
        )

    def add(self, model: str, truth: Sequence[str], found: Sequence[Sublayer]) -> None:
        """Both in the order of the forward pass; of different numbers, none counts as found."""
        if len(truth) != len(found):
            self.wrong_unsure += [
                f"{model}: {len(found)} instead of {len(truth)} sub-layers"
            ] * len(truth)
            self.wrong_sure += [
                _said(model, s)
                for s in found
                if s.confidence == "sure" and s.placement not in truth
            ]
            return
        for name, sublayer in zip(truth, found, strict=True):
            if sublayer.placement == name:
                self.exact += 1
            elif name in sublayer.also:
                self.equal += 1
            else:
                missed = (
                    self.wrong_unsure
                    if sublayer.confidence == "unsure" or not sublayer.placement
                    else self.wrong_sure
                )
                missed.append(_said(model, sublayer))

    def __str__(self) -> str:
        missed = "".join(f"\n  unsure: {text}" for text in self.wrong_unsure)
        missed += "".join(f"\n  SURE: {text}" for text in self.wrong_sure)
        return (
            f"right {self.share_right:.2%}: {self.exact} exact, {self.equal} of equal formula; "
            f"wrong {len(self.wrong_unsure)} unsure, {len(self.wrong_sure)} sure{missed}"
        )


def _said(model: str, sublayer: Sublayer) -> str:
    return (
        f"{model}, {sublayer.kind} of block {sublayer.block}: {sublayer.placement!r} "
        f"({sublayer.formula})"
    )


def _in_blocks(stacks: Sequence[Stack]) -> Iterator[Sublayer]:
    return (sublayer for stack in stacks for sublayer in stack.sublayers if sublayer.block)


FOUND = [name for name in registered() if expected(name).found_by_doctor]


@pytest.fixture
def names(request: pytest.FixtureRequest) -> list[str]:
    """The placements that are looked at, by `make test` a sample."""
    return FOUND if request.config.getoption("--whole") else FOUND[::6]


def of_the_registry(names: Sequence[str]) -> Score:
    score = Score()
    for placement in names:
        truth = [placement] * 4 * (len(ENCODER) + len(DECODER))
        score.add(placement, truth, list(_in_blocks(found_in(placement))))
    return score


def of_foreign_models(_names: Sequence[str]) -> Score:
    score = Score()
    for name, case in EVERY.items():
        truth = [placement for known in case.stacks for placement in known.truth]
        score.add(name, truth, list(_in_blocks(stacks_of(name))))
    for name, case in ODD.items():
        found = list(_in_blocks(find_stacks(scrambled(case.build()), case.inputs())))
        truth = [placement for known in case.stacks for placement in known.truth]
        score.add(name, truth if len(truth) == len(found) else [""] * len(found), found)
    return score


@pytest.mark.parametrize("of", [of_the_registry, of_foreign_models])
def test_nearly_all_placements_are_right_and_none_is_wrong_without_doubt(of, names):
    score = of(names)
    assert score.share_right >= 0.95, str(score)
    assert not score.wrong_sure, str(score)


def test_every_registered_placement_is_right_to_the_last_sublayer(names):
    score = of_the_registry(names)
    assert score.share_right == 1, str(score)
    # Of equal formula are those that differ in their weights alone, and those that are another's in
    # an encoder.
    known = [expected(name) for name in names]
    equal = sum(20 if one.same_formula else 8 if one.same_in_encoders else 0 for one in known)
    assert (score.exact, score.equal) == (20 * len(known) - equal, equal), str(score)


@pytest.mark.parametrize("name", WITHOUT_SUMS)
def test_streams_without_sums_are_not_made_up(name):
    with pytest.raises(ValueError, match="no residual stream found"):
        find_stacks(scrambled(WITHOUT_SUMS[name].build()), WITHOUT_SUMS[name].inputs())
