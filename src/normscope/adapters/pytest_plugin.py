"""For pytest: the fixture `norm_doctor`, with which a test fails where the doctor finds something
wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..doctor.diagnose import Diagnosis
    from ..doctor.result import Finding

# Whatever the fixture needs is imported when it is called: this file is read at the start of every
# run of pytest.


@pytest.fixture
def norm_doctor(request: pytest.FixtureRequest) -> Callable[..., Diagnosis]:
    """`norm_doctor(model, batch, loss=None, fail_on="warning", **options)` returns the diagnosis of
    a model.

    The test fails, with what was found, where a finding is as bad as `fail_on` ("info", "warning"
    or "error") or worse.
    options: those of `normscope.diagnose`; `advise`, which takes longest, is off unless it is asked
    for. Rules silenced in the pyproject.toml of pytest's root folder are not asked, beside those
    named in `silenced`.
    """

    def examine(
        model: Any, batch: Any, loss: Any = None, fail_on: str = "warning", **options: Any
    ) -> Diagnosis:
        from ..doctor.diagnose import diagnose
        from ..doctor.lint.linter import silenced_in
        from ..doctor.result import Severity
        from ..errors import no_end

        if fail_on not in tuple(Severity):
            raise ValueError(f"fail_on={fail_on!r}; choose one of {', '.join(Severity)}")
        silenced = (*silenced_in(request.config.rootpath), *options.pop("silenced", ()))
        with no_end():
            diagnosis = diagnose(
                model, batch, loss=loss, silenced=silenced, **{"advise": False, **options}
            )
        least = Severity(fail_on).rank
        if findings := [
            finding for finding in diagnosis.findings if finding.severity.rank >= least
        ]:
            pytest.fail(_report(findings, diagnosis.target or type(model).__name__), pytrace=False)
        return diagnosis

    return examine


def _report(findings: Sequence[Finding], target: str) -> str:
    from ..doctor.report.words import placed

    lines = [
        f"normscope's doctor finds {len(findings)} thing{'s' if len(findings) > 1 else ''} wrong "
        f"with {target}"
    ]
    for finding in findings:
        place = placed(finding)
        where = f" at {place}" if place else ""
        lines += [
            f"{finding.severity}: {finding.id}{where}: {finding.message}",
            f"    {finding.fix}",
        ]
    names = [finding.id for finding in findings]
    ids = ", ".join(f'"{name}"' for name in dict.fromkeys(names))
    lines.append(
        f"What is meant is silenced in pyproject.toml: [tool.normscope.doctor] silence = [{ids}]"
    )
    return "\n".join(lines)
