"""Rates carried to longer trainings and larger models: on ladders that are known, and both studies
as a whole.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from advised import UNIGRAM, ladder_of
from normscope_studies import horizons, rate_transfer
from normscope_studies.advice import carrying
from normscope_studies.advice.carrying import POWER, UNCHANGED, Growth
from normscope_studies.advice.ladder import Ladder
from normscope_studies.advice.models import built
from normscope_studies.advice.tasks import task_of
from normscope_studies.advice.training import model_of, optimizer_of
from normscope_studies.engine.pieces import Pieces

_RUNG = math.log10(2)


def growth(start, end, cluster="a", times=4.0, **changes) -> Growth:
    """From a bowl about one rung to a bowl about another."""
    smaller, larger = ladder_of(start, **changes), ladder_of(end, **changes)
    return Growth(
        group="depth", cluster=cluster, smaller=smaller, larger=larger, decades=math.log10(times)
    )


def other_cluster(one: Growth, other: Growth) -> bool:
    return one.cluster != other.cluster


def by_way(several, cluster):
    return {one.way: one for one in several if one.growth.cluster == cluster}


def test_a_power_is_fitted_to_the_others():
    """The best rate falls a rung over four times the depth, and so two over sixteen times."""
    found = by_way(
        carrying.carried([growth(4, 3), growth(4, 2, "b", times=16.0)], other_cluster), "b"
    )
    assert found[POWER].foretold == pytest.approx(-2 * _RUNG, abs=1e-3)
    assert found[POWER].near
    assert found[POWER].lost == pytest.approx(0.0, abs=1e-3)
    assert not found[UNCHANGED].near
    # Two rungs from the bottom of a bowl whose gain is 1.
    assert found[UNCHANGED].lost == pytest.approx(0.03 * 2**2, abs=1e-3)


def test_without_another_cluster_the_rate_stays():
    found = by_way(carrying.carried([growth(4, 3), growth(5, 3)], other_cluster), "a")
    assert found[POWER].foretold == 0.0


def test_what_learned_at_no_rate_is_left_out():
    nothing = replace(
        ladder_of(4),
        outcomes={step: {"valid_nats": UNIGRAM, "train_nats": []} for step in range(7)},
    )
    assert carrying.carried([replace(growth(4, 3), larger=nothing)], other_cluster) == []


def test_a_law_that_is_known_stands_beside():
    both = carrying.carried(
        [growth(4, 3), growth(4, 3, "b")], other_cluster, lambda one: -2 * _RUNG
    )
    found = by_way(both, "a")
    assert found[carrying.KNOWN].lost == pytest.approx(0.03, abs=1e-3)
    named = [claim.name for claim in carrying.claims(both)]
    assert len(named) == len(set(named)) == 6
    less = carrying.beside_unchanged(carrying.by_group(both), "depth", POWER)
    assert float(less.mean) == pytest.approx(-0.03, abs=1e-3)


def test_shorter_trainings_stand_beside_all_longer_ones():
    several = [ladder_of(3, updates=updates) for updates in (1000, 200, 4000)]
    found = horizons.growths(several)
    assert [(one.smaller.updates, one.larger.updates) for one in found] == [
        (200, 1000),
        (200, 4000),
        (1000, 4000),
    ]
    assert [one.decades for one in found] == pytest.approx(
        [math.log10(times) for times in (5, 20, 4)]
    )


def test_only_four_times_as_large_counts():
    config = rate_transfer.RateTransferConfig()

    def known(case) -> Ladder:
        return replace(ladder_of(3), case=case)

    chains = [config.deep("post-ln"), config.wide("llama", "characters")]
    found = rate_transfer.growths(config, [[known(case) for case in chain] for chain in chains])
    assert [(one.group, one.smaller.case.blocks, one.larger.case.blocks) for one in found[:2]] == [
        (rate_transfer.DEPTH, blocks, 4 * blocks) for blocks in (2, 4)
    ]
    assert [(one.group, one.larger.case.narrower) for one in found[2:]] == [
        (rate_transfer.WIDTH, 1.0),
        (rate_transfer.WIDTH_MUP, 4.0),
    ]


def test_exponents_of_depth_are_those_of_least_squares():
    """As scipy has them, of the depths at which a placement learned; one that falls is told from
    one that rises.
    """

    def chain(placement: str, rungs: list[int]) -> list[Ladder]:
        cases = rate_transfer.RateTransferConfig().deep(placement)
        return [
            replace(ladder_of(rung), case=case) for rung, case in zip(rungs, cases, strict=True)
        ]

    falling, rising, flat = (
        chain("deepnorm", [7, 6, 5, 3]),
        chain("lns", [2, 3, 4, 5]),
        chain("completep", [4] * 4),
    )
    nothing = {step: {"valid_nats": UNIGRAM, "train_nats": []} for step in range(7)}
    lost = [
        replace(one, outcomes=nothing) if at > 1 else one
        for at, one in enumerate(chain("post-ln", [5, 4, 3, 2]))
    ]
    found = rate_transfer.depth_exponents([falling, rising, flat, lost])
    assert set(found) == {"deepnorm", "lns", "completep"}
    line = stats.linregress(np.log10([2, 4, 8, 16]), [one.best for one in falling])
    one = found["deepnorm"]
    assert float(one.mean) == pytest.approx(line.slope)
    assert float(one.half_width) == pytest.approx(stats.t.ppf(0.975, 2) * line.stderr)
    assert float(one.deviation) / math.sqrt(one.count) == pytest.approx(line.stderr)
    falls, stays = rate_transfer.depth_claims(found)
    assert falls.conditions.startswith("DeepNorm; not LayerNorm scaling")
    assert stays.verdict == "reproduced"
    assert rate_transfer.depth_claims({}) == []


@pytest.mark.parametrize("model", ["nanogpt", "torch-post"])
def test_mup_draws_and_steps_by_the_width(model):
    """Hidden matrices have one deviation times the root of the width at any width, and a step as
    much smaller.
    """
    narrow, plain, wide = rate_transfer.RateTransferConfig(texts=("arithmetic",)).wide(
        model, "arithmetic"
    )
    inner = {"nanogpt": "blocks.0.up.weight", "torch-post": "layers.0.linear1.weight"}[model]
    drawn = [
        float(built(case, 64, 1).get_parameter(inner).detach().std()) for case in (narrow, wide)
    ]
    assert drawn[1] == pytest.approx(drawn[0] / 2, rel=0.1)
    assert torch_factors(plain) == {1.0}
    assert torch_factors(wide) == {1.0, 0.25}


def torch_factors(case) -> set[float]:
    from normscope.optim import make_optimizer

    task = task_of(case, "nowhere", "nowhere", 1)
    optimizer = make_optimizer(model_of(case, task, 1), optimizer_of(case, 1e-3))
    return {group["lr_factor"] for group in optimizer.param_groups}


@pytest.mark.parametrize("study", [horizons, rate_transfer])
def test_the_study_as_a_whole(study, tmp_path):
    """Small, and everything is trained."""
    config = replace(study.STUDY.scales["smoke"], processes=1)
    found = study.run(config, Pieces(tmp_path))
    assert found.claims
    assert found.data["ladders"]
    for one in found.data["growths"]:
        assert one["lost"] >= 0
    again = Pieces(tmp_path)
    study.run(config, again)
    assert again.made == []


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (horizons.HorizonsConfig, {"cases": ()}, "one or more"),
        (
            horizons.HorizonsConfig,
            {"cases": (ladder_of(1).case,), "horizons": (100,)},
            "two or more",
        ),
        (rate_transfer.RateTransferConfig, {"blocks": (2, 4)}, "four times"),
    ],
)
def test_what_cannot_be_asked(config, changes, message):
    with pytest.raises(ValueError, match=message):
        config(**changes)
