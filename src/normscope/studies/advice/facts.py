"""What the doctor sees of a case before its first update: the facts its advice goes by."""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...data.parallel.batches import TranslationBatch
from ...doctor.advise.calibration import Facts, facts_of
from ...doctor.advise.first_update import first_update
from ...doctor.trace.inputs import Inputs
from ...model import EncoderDecoder, Layout
from ...optim import make_optimizer
from .cases import Case
from .training import model_of, optimizer_of, task_of

SUBLAYERS_A_BLOCK = 5
"""Two of an encoder's block and three of a decoder's."""


def facts_about(case: Case, max_tokens: int) -> dict[str, Any]:
    """As plain values, with the curves they were read from."""
    task = task_of(case, max_tokens)
    model, batch = model_of(case, task), task.micro_batch(0)
    inputs, targets = as_inputs(batch)
    seen = first_update(
        model,
        inputs,
        lambda logits: functional.cross_entropy(logits, targets),
        lambda _, weight: make_optimizer([weight], optimizer_of(case, 1.0)),
    )
    facts = facts_of(seen, optimizer=case.optimizer, sublayers=SUBLAYERS_A_BLOCK * case.blocks)
    return {
        "facts": asdict(facts),
        "critical_rate": seen.critical_rate,
        "rates": seen.rates,
        "losses": seen.losses,
        "spreads": seen.spreads,
        "loss_before": seen.loss_before,
    }


def as_facts(table: dict[str, Any]) -> Facts:
    return Facts(**table["facts"])


def as_inputs(batch: TranslationBatch) -> tuple[Inputs, Tensor]:
    """What runs an `EncoderDecoder` on a batch and gives its logits, and the targets (M,)."""
    source, target = Layout(batch.source_lengths_B), Layout(batch.target_lengths_B)
    source_N, target_M = source.pack(batch.source_BS), target.pack(batch.target_in_BT)

    def run(model: nn.Module) -> Tensor:
        assert isinstance(model, EncoderDecoder)
        return model.logits(model(source_N, source, target_M, target))

    return run, target.pack(batch.target_out_BT)


def use_one_thread() -> None:
    """Cases are measured side by side, and one thread gives the same bits wherever they are."""
    torch.set_num_threads(1)
