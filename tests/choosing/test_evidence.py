"""The packaged evidence is what the results say, number by number, recomputed here in another
way.
"""

import json
import re
from pathlib import Path

import pytest

from choosing.recomputed import at, recomputed, result
from normscope.choosing.evidence import FILE, packed, published, stored, unpacked
from normscope.errors import UserError
from normscope.optim.optimizers import OPTIMIZERS
from normscope.placement import registered


def test_every_finding_stands_where_it_says() -> None:
    for finding in stored().findings:
        mean, half_width, seeds = recomputed(finding)
        assert finding.mean == pytest.approx(mean, rel=1e-9, abs=1e-12), finding
        assert finding.seeds == seeds
        if half_width is None or len(finding.source) == 1:
            assert finding.half_width == half_width
        else:
            assert finding.half_width == pytest.approx(half_width, rel=1e-8, abs=1e-12), finding


def test_every_rate_and_every_behaviour_stands_where_it_says() -> None:
    for rate in stored().rates:
        data, place = (
            result(stored().settings[rate.setting].result),
            rate.source.removesuffix("/last_loss_nats"),
        )
        assert at(data, rate.source) == rate.loss_nats
        arm = at(data, place.removesuffix("/seeds/*/valid_loss_nats"))
        assert arm.get("best_lr", arm.get("peak_lr")) == rate.peak_lr
        assert rate.ladder[0] <= rate.peak_lr <= rate.ladder[1]
        assert rate.at_an_end == (rate.peak_lr in rate.ladder)
    for depth in stored().depths:
        assert at(result("depth"), depth.source) == depth.exponent
        assert at(result("depth"), depth.source.replace("exponent", "name")) == depth.placement
    for one in stored().advice:
        claim = at(result(one.result), one.source)
        assert (claim["statement"], claim["found"], claim["verdict"]) == (
            one.statement,
            one.found,
            one.verdict,
        )


def test_a_study_s_own_verdicts_are_those_of_the_evidence() -> None:
    """Where a result has judged the same: with all its pairs together, so that it decides less and
    nothing else.
    """
    own = {"does not": "supported", "needs it": "contradicted", "gains from it": "contradicted"}
    data = result("optimizers_long")
    judged = {(one["placement"], one["optimizer"]): one["verdict"] for one in data["pairings"]}
    found = {
        (f.placement, f.optimizer): f
        for f in stored().findings
        if f.setting == "optimizers_long" and "no-" in f.question
    }
    assert found.keys() == judged.keys()
    for key, finding in found.items():
        assert judged[key] == "undecided" or finding.answer == own.get(judged[key], "undecided")
    assert {"does not", "undecided"} == set(judged.values())
    unlearned = {key for key, finding in found.items() if not finding.learned}
    assert unlearned == {key for key, verdict in judged.items() if verdict == "did not learn"}


def test_the_optimisers_are_all_that_there_are() -> None:
    assert stored().optimizers == list(OPTIMIZERS)
    assert {finding.optimizer for finding in stored().findings} <= set(OPTIMIZERS)
    assert {finding.placement for finding in stored().findings} <= set(registered())


def test_what_others_published_has_a_source_and_placements_that_there_are() -> None:
    for one in published():
        assert re.search(r"arXiv:\d{4}\.\d{5}|^\w[\w-]+/[\w-]+, ", one.citation), one.citation
        assert set(one.placements) <= set(registered())
        assert all(one.model in registered()[name].models for name in one.placements)


def test_values_survive_the_file_and_a_changed_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from normscope.choosing import evidence as module

    table = json.loads(packed(stored()))
    assert unpacked(table) == stored()
    changed = tmp_path / "evidence.json"
    changed.write_text(
        FILE.read_text(encoding="utf-8").replace("0.00769757", "0.00769756", 1), encoding="utf-8"
    )
    monkeypatch.setattr(module, "FILE", changed)
    with pytest.raises(UserError, match="damaged"):
        module.stored.__wrapped__()
