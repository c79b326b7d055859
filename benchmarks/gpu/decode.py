"""Beam search of the paper's model beside transformers' `generate`: the same sources, exactly as
many tokens.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu.part import Arm, Measured, Part, Row, Where
from gpu.systems.translation import PAPER, QUICK, marian
from gpu.timing import product_rate, set_precision, timed
from normscope.data.parallel.vocabulary import EOS, PAD
from normscope.decode.search import BeamConfig, beam_search
from normscope.model import EncoderDecoder
from normscope.runs.machine import counting
from normscope.train.device import Precision

BEAM = 5
Decode = Callable[[list[Tensor]], int]
"""Source sentences on the CPU -> tokens of one hypothesis, as proof of what was decoded."""


def _arms(where: Where) -> dict[str, Arm]:
    sizes = (2,) if where.quick else (32, 256)
    precisions: tuple[Precision, ...] = ("bf16", "fp32")
    systems: dict[str, Callable[..., Decode]] = {
        "normscope": _normscope,
        "transformers": _transformers,
    }
    arms: dict[str, Arm] = {
        f"product {precision}": partial(product_rate, where, precision) for precision in precisions
    }
    arms |= {f"operations, {size} sentences": partial(_operations, where, size) for size in sizes}
    return arms | {
        f"{name}, {precision}, {size} sentences": partial(_timed, where, make, precision, size)
        for precision in precisions
        for size in sizes
        for name, make in systems.items()
    }


def _sources(where: Where, sentences: int) -> list[Tensor]:
    """Random ids, 25 ± 15 of them, each ending with EOS."""
    generator = torch.Generator().manual_seed(0)
    lengths = (torch.randn(sentences, generator=generator) * 15 + 25).clamp(2, 60).int().tolist()
    draws = (
        torch.randint(4, _vocabulary(where), (length,), generator=generator) for length in lengths
    )
    return [torch.cat([draw, torch.tensor([EOS])]) for draw in draws]


def _vocabulary(where: Where) -> int:
    return 50 if where.quick else 10_000


def _tokens(where: Where) -> int:
    return 4 if where.quick else 32


def _timed(
    where: Where, make: Callable[..., Decode], precision: Precision, sentences: int
) -> Measured:
    set_precision(where, precision)
    torch.manual_seed(1)
    decode, sources = (
        make(where, torch.bfloat16 if precision == "bf16" else torch.float32),
        _sources(where, sentences),
    )

    def step(batch: list[Tensor]) -> None:
        if (tokens := decode(batch)) != _tokens(where):
            raise RuntimeError(
                f"decoded {tokens} tokens instead of {_tokens(where)}: the comparison would not be "
                "fair"
            )

    return {"precision": precision, "sentences": sentences} | timed(where, step, [sources])


def _operations(where: Where, sentences: int) -> Measured:
    decode = _normscope(where, torch.bfloat16)
    with counting() as counted:
        decode(_sources(where, sentences))
    return {"operations": counted.get_total_flops()}


def _normscope(where: Where, dtype: torch.dtype) -> Decode:
    """The end token is held back until it is forced."""
    vocabulary, last = _vocabulary(where), _tokens(where) - 1
    model = EncoderDecoder(QUICK if where.quick else PAPER, vocabulary, vocabulary).to(
        where.device, dtype
    )
    config = BeamConfig(beam=BEAM, max_length_ratio=0, max_length_extra=last, min_length=last)
    return lambda batch: len(beam_search(model, batch, config)[0][0].tokens)


def _transformers(where: Where, dtype: torch.dtype) -> Decode:
    model: Any = (
        marian(QUICK if where.quick else PAPER, _vocabulary(where)).eval().to(where.device, dtype)
    )

    def decode(batch: list[Tensor]) -> int:
        grid = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=PAD).to(
            where.device
        )
        with torch.inference_mode():
            found = model.generate(
                grid,
                attention_mask=(grid != PAD).long(),
                num_beams=BEAM,
                do_sample=False,
                min_new_tokens=_tokens(where),
                max_new_tokens=_tokens(where),
            )
        return int(found.shape[1]) - 1

    return decode


def _rows(arms: Mapping[str, Measured]) -> Iterator[Row]:
    for name, one in arms.items():
        if "sentences" not in one:
            continue
        precision, sentences = one["precision"], one["sentences"]
        peer = arms.get(f"transformers, {precision}, {sentences} sentences")
        row: Row = {
            "beam search": name,
            "sentences/s": sentences / one["seconds"],
            "peak MB": one["peak_mb"],
        }
        row["× transformers"] = peer["seconds"] / one["seconds"] if peer else None
        operations, product = (
            arms.get(f"operations, {sentences} sentences"),
            arms.get(f"product {precision}"),
        )
        if operations and product:
            row["MFU %"] = (
                100 * operations["operations"] / one["seconds"] / 1e12 / product["tflops"]
            )
        yield row


DECODE = Part(arms=_arms, rows=_rows)
