"""Whether a tuned rate carries over to wider and deeper models."""

from collections.abc import Iterator, Mapping
from typing import Any

from ..evidence import EvidenceRow, EvidenceSetting, QuestionName, Support
from .settings import measured_in

_ANSWERS: Mapping[str, Support] = {"transfers": "supported", "drifts": "contradicted", "undecided": "undecided"}


def transfer(name: str, data: Any) -> Iterator[EvidenceSetting | EvidenceRow]:
    """`normscope study transfer`: the exponent of the best rate over width and depth, with its own verdicts."""
    asked = data["settings"]
    setting = measured_in(
        name,
        data,
        model="decoder-only",
        blocks=asked["depths"],
        width=asked["widths"],
        updates=asked["updates"],
        update_tokens=asked["batch_sequences"] * asked["sequence_length"],
        text=asked["text"],
        unigram_nats=None,
    )
    yield setting
    for place, one in enumerate(data["exponents"]):
        if one["of"] != "best rate":
            continue
        question: QuestionName = "rate-over-depth" if one["axis"] == "depth" else "rate-over-width"
        ends = one["sizes_with_the_best_rate_at_an_end"]
        warm = f"warm-up of {one['at']} updates" if one["at"] else "no warm-up"
        yield EvidenceRow(
            question=question,
            placement=one["placement"],
            optimizer="adam",
            setting=name,
            answer=_ANSWERS[one["verdict"]],
            mean=one["exponent"]["mean"],
            half_width=one["exponent"]["half_width"],
            seeds=one["exponent"]["seeds"],
            source=[f"/exponents/{place}/exponent"],
            note=f"{warm}, one seed of each size" + (f"; {ends} with its best rate at the ladder's end" * bool(ends)),
        )
