"""What the comparison across a refactoring asks for by name is where it looks for it."""

import json
from pathlib import Path

from golden import committed, verbs
from golden.answers import Desk
from normscope.choosing import evidence

ROOT = Path(__file__).parents[1]


def test_the_evidence_that_is_recorded_is_the_package_s(tmp_path: Path) -> None:
    desk = Desk(ROOT, tmp_path)
    verbs.choices(ROOT)["evidence"](desk)
    recorded = json.loads((tmp_path / "evidence.json").read_text(encoding="utf-8"))
    packed = json.loads(evidence.FILE.read_text(encoding="utf-8"))
    assert recorded["findings"]
    assert recorded == desk.plain(packed)


def test_claims_judged_anew_are_those_of_the_committed_results(tmp_path: Path) -> None:
    """Of the study whose claims are judged the fastest."""
    desk = Desk(ROOT, tmp_path)
    committed.items(ROOT)["optimizers"](desk)
    recorded = json.loads((tmp_path / "claims.json").read_text(encoding="utf-8"))
    assert recorded["claims"]
    assert recorded["verdicts_unlike_the_committed"] == []
