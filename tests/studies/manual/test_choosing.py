"""docs/choosing.md and what the terminal prints: each number is one of the evidence, of a source,
or of theory.
"""

import json
import re
from functools import cache
from pathlib import Path

import pytest

import normscope
from choosing.recomputed import RESULTS, at, recomputed, result
from normscope.choosing.choice import EvidenceForModel, choose
from normscope.choosing.evidence import published, stored
from normscope.placement import registry
from normscope_studies.manual.choosing import CASES, TABLES, command, pages

DOCS = Path(__file__).parents[3] / "docs"
NUMBER = re.compile(r"[−-]?\d[\d,]*(?:\.\d+)?(?:e[−-]?\d+)?")
ROW = re.compile(r"^\| (.*) \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def both() -> dict[str, str]:
    """What the placements that come with NormScope give, whatever other tests have registered."""
    ours = {
        name: p
        for name, p in registry._REGISTRY.items()
        if p.__module__.startswith("normscope.placement.")
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_REGISTRY", ours)
        return pages(stored())


@pytest.fixture(scope="module")
def written(both: dict[str, str]) -> str:
    return both[TABLES]


def value(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))


def is_rounded(shown: str, numbers: list[float]) -> bool:
    """Whether one of the numbers, rounded as the text is, is the text's."""
    mantissa, _, exponent = shown.replace("−", "-").replace(",", "").partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
    return any(abs(number - value(shown)) <= 0.5000001 * 10.0**-decimals for number in numbers)


def rows(section: str, heading: str) -> list[dict[str, str]]:
    """All rows of the tables below a heading, by column; an empty first cell repeats the one
    above.
    """
    text = section.partition(f"### {heading}\n")[2].partition("\n###")[0]
    found, columns, last = [], list[str](), ""
    for line in ROW.findall(text):
        cells = [cell.strip() for cell in line.split(" | ")]
        if cells[0] in ("placement", "results/"):
            columns = cells
        elif set(cells) != {"---"}:
            last = cells[0] or last
            found.append({**dict(zip(columns, cells, strict=True)), columns[0]: last})
    return found


def sections(written: str) -> dict[str, str]:
    return {str(case): written.partition(f"## {case}\n")[2].partition("\n## ")[0] for case in CASES}


def test_the_manual_is_up_to_date(both: dict[str, str]) -> None:
    again = "run `python -m normscope_studies.manual docs` and commit what it writes"
    assert {name: (DOCS / name).read_text(encoding="utf-8") for name in both} == both, again


def test_ten_cases_are_shown_with_the_command_that_prints_them(written: str) -> None:
    assert len(sections(written)) == len(CASES) == 10
    assert all(f"$ {command(case)}\n" in written for case in CASES)
    assert command(CASES[0]).endswith("--optimizer muon --tokens 5e9")


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_number_of_a_case_is_in_its_result(case, written: str) -> None:
    section, choice = sections(written)[str(case)], choose(case)
    for answered in choice.answers:
        shown = rows(section, answered.question.heading)
        assert len(shown) == sum(len(claim.findings) for claim in answered.claims)
        for row in shown:
            name, _, optimizer = row["results/"].partition(", ")
            name = name if optimizer in ("", *stored().optimizers) else row["results/"]
            [finding] = [
                one
                for claim in answered.claims
                if claim.placement == row["placement"]
                for one in claim.findings
                if one.setting == name
                and is_rounded(
                    NUMBER.findall(row.get("difference", row.get("exponent")))[0], [one.mean]
                )
                and one.note
                in row["remark"]  # which warm-up it stands against, where a result has several
            ]
            mean, half_width, seeds = recomputed(finding)
            numbers = NUMBER.findall(row.get("difference", row.get("exponent")))
            assert is_rounded(numbers[0], [mean])
            assert [is_rounded(number, [half_width]) for number in numbers[1:]] == [True] * (
                half_width is not None
            )
            assert NUMBER.findall(row["seeds"]) == [str(seeds)]
            _remark_is_of_the_result(row["remark"], name)
    for row in rows(section, "Which rate was best, with which warm-up?"):
        _rate_is_of_its_result(row, choice)
    _theory_is_that_of_predict(rows(section, "What depth does, by theory"), choice)
    _distances_are_those_of_the_sizes(rows(section, "Evidence that counts here"), choice)


def _remark_is_of_the_result(remark: str, setting: str) -> None:
    """A rate, a warm-up, a count of sizes: numbers that the result holds."""
    assert all(is_rounded(number, _held(setting)) for number in NUMBER.findall(remark)), remark


@cache
def _held(setting: str) -> list[float]:
    """All numbers of a result, those in its words too."""
    text = json.dumps(result(stored().settings[setting].result))
    return sorted({float(number) for number in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", text)})


def _rate_is_of_its_result(row: dict[str, str], choice: EvidenceForModel) -> None:
    warmup = 0 if row["warm-up"] == "none" else int(NUMBER.findall(row["warm-up"])[0])
    rates = [
        one
        for one in choice.rates
        if (one.placement, one.warmup_updates) == (row["placement"], warmup)
        and row["results/"].startswith(one.setting)
    ]
    for rate in rates:
        losses = at(result(stored().settings[rate.setting].result), rate.source)
        if is_rounded(row["mean loss"], [sum(losses) / len(losses)]):
            break
    else:
        pytest.fail(f"no such rate: {row}")
    best = row["best rate"].removesuffix(r" \*")
    assert value(best) == pytest.approx(rate.peak_lr, rel=5e-3)
    assert (best != row["best rate"]) == (rate.peak_lr in rate.ladder)
    assert [value(n) for n in NUMBER.findall(row["tried"])] == pytest.approx(rate.ladder, rel=5e-3)
    assert int(row["seeds"]) == len(losses)


def _theory_is_that_of_predict(shown: list[dict[str, str]], choice: EvidenceForModel) -> None:
    stack = {"encoder-only": "encoder", "decoder-only": "decoder"}.get(
        choice.case.model, "encoder-decoder"
    )
    size = {
        "blocks": choice.case.blocks,
        "width": choice.case.width,
        "ffn_width": 4 * choice.case.width,
    }
    names = [row["placement"] for row in shown]
    found = normscope.predict(*names, stack=stack, setting="as-placement", **size)
    behaviour = {one["name"]: one for one in result("depth")["placements"]}
    for row in shown:
        curve = list(found.stacks[row["placement"]].values())[-1]
        gradient = curve.gradient_norm["ffn_out"]
        expected = [curve.q[0], curve.q[-1], gradient[0], gradient[-1]]
        for text, number in zip(list(row.values())[1:5], expected, strict=True):
            assert value(text) == pytest.approx(number, rel=5.1e-3, abs=1e-12)
        said = list(row.values())[5]
        if said != "–":
            one = behaviour[row["placement"]]
            assert said.startswith(one["behaviour"])
            assert all(
                is_rounded(n, [one["exponent"]])
                for n in NUMBER.findall(said.partition("exponent")[2])
            )


def _distances_are_those_of_the_sizes(
    shown: list[dict[str, str]], choice: EvidenceForModel
) -> None:
    case = choice.case
    for row in shown:
        away = dict(
            zip(("blocks", "width", "tokens"), NUMBER.findall(row["this model is"]), strict=False)
        )
        for size, text in away.items():
            ends = [value(number) for number in NUMBER.findall(row[size])]
            own = getattr(case, size)
            nearest = min(max(own, ends[0]), ends[-1]) if size != "tokens" else ends[0]
            assert value(text) == pytest.approx(own / nearest, rel=5.1e-3)


def test_every_claim_of_others_stands_with_its_source(both: dict[str, str]) -> None:
    for one in published():
        [line] = [
            line for line in both["choosing.md"].splitlines() if line.startswith(f"- {one.claim} (")
        ]
        assert one.citation in line
        assert {"read": "read at", "second-hand": "another text"}[one.checked] in line


def test_every_result_that_is_named_is_there(both: dict[str, str]) -> None:
    for name in re.findall(r"results/(\w+)", "".join(both.values())):
        assert (RESULTS / name).is_dir() or name == "RESULT", name


def test_the_overview_counts_what_its_tables_show(both: dict[str, str]) -> None:
    for case in CASES:
        [line] = [
            line
            for line in both["choosing.md"].splitlines()
            if line.startswith(f"| [{case}]({TABLES}#")
        ]
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")][2:]
        for cell, answered in zip(cells, choose(case).answers, strict=True):
            groups = [claim.group for claim in answered.claims if claim.group != "not known"]
            assert cell == (
                f"{groups.count('supported')} of {len(groups)}" if groups else "not known"
            )
