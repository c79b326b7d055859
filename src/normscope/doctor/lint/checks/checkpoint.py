"""Norms that a loaded checkpoint was trained without, or with and the model lacks."""

import re
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ...result import Finding, Severity
from ..needs import a_checkpoint
from ..rules import Patient, Rule
from ..vectors import listed, norm_parameters

_LIKE_A_NORM = re.compile(r"norm|(?<![a-z])ln(?![a-z])", re.IGNORECASE)
"""Of a tensor that only the checkpoint has, nothing but its name is known."""
FEWEST_LIKES = 2
"""Norms of the same width that must have been trained before one that was not stands out."""


def checkpoint_tensors(patient: Patient) -> Iterator[Finding]:
    """Weights of a stack that the checkpoint lacks, and norms that the model lacks."""
    if patient.loading is None:
        return
    norms = _norms(patient)
    lacking = [name for name in patient.loading.missing if name.rpartition(".")[0] in norms]
    if lacking:
        yield Finding(
            id="checkpoint-tensors",
            severity=Severity.ERROR,
            where=listed(lacking),
            message=f"the model has {len(lacking)} gains and shifts of norms that the checkpoint lacks: it was trained "
            "without these norms",
            fix="set the flag that builds them as it was in training: for the final norm often that of Pre-LN",
        )
    used = {name for _, sublayer in patient.sublayers() for name in sublayer.measured.parameters}
    weights = [name for name in patient.loading.missing if name in used and name not in lacking]
    if weights:
        yield Finding(
            id="checkpoint-tensors",
            severity=Severity.ERROR,
            where=listed(weights),
            message=f"the checkpoint lacks {len(weights)} weights of the stacks' sub-layers, which are as they were "
            "drawn",
            fix="load a checkpoint of this model, and compare the names of its tensors with the model's",
        )
    unexpected = [name for name in patient.loading.unexpected if _LIKE_A_NORM.search(name)]
    if unexpected:
        yield Finding(
            id="checkpoint-tensors",
            severity=Severity.ERROR,
            where=listed(unexpected),
            message=f"the checkpoint has {len(unexpected)} tensors of norms that the model has no place for: it was "
            "trained with norms that the model lacks",
            fix="set the flag that builds them as it was in training: for the final norm often that of Pre-LN",
        )


def untrained_norm(patient: Patient) -> Iterator[Finding]:
    """A norm whose gain and shift are exactly as they were made, while all its likes have been trained."""
    unused = set(patient.observed.unused_parameters)
    by_width: dict[int, dict[str, bool]] = {}
    for path, own in _norms(patient).items():
        if not any(f"{path}.{name}" in unused for name in own):
            width = max(tensor.numel() for tensor in own.values())
            by_width.setdefault(width, {})[path] = all(map(_is_initial, own.values()))
    for width, norms in by_width.items():
        fresh = [path for path, initial in norms.items() if initial]
        trained = len(norms) - len(fresh)
        if fresh and trained >= max(FEWEST_LIKES, 2 * len(fresh)):
            yield Finding(
                id="untrained-norm",
                severity=Severity.ERROR,
                where=listed(fresh),
                message=f"every gain is exactly its initial value and every shift exactly 0, while the {trained} other "
                f"norms of width {width} have been trained: the weights come from a model without "
                + ("this norm" if len(fresh) == 1 else f"these {len(fresh)} norms"),
                fix="set the flag that builds it as it was in training, or train on",
            )


def _norms(patient: Patient) -> Mapping[str, dict[str, Tensor]]:
    """Parameters of norms of a stream's width, by the path of the module and their own names."""
    widths = {stack.width for stack in patient.stacks}
    found: dict[str, dict[str, Tensor]] = {}
    for name, parameter in norm_parameters(patient.model).items():
        if parameter.ndim == 1 and parameter.numel() in widths and parameter.numel() > 1:
            path, _, own = name.rpartition(".")
            found.setdefault(path, {})[own] = parameter.detach()
    return found


def _is_initial(tensor: Tensor) -> bool:
    """All 1, or all 0: a gain or a shift, or a gain that is counted from 1."""
    return bool((tensor == tensor[0]).all()) and float(tensor[0]) in (0.0, 1.0) and bool(torch.isfinite(tensor).all())


PLACE = 40
RULES: tuple[Rule, ...] = (
    Rule(
        id="checkpoint-tensors",
        severity=Severity.ERROR,
        title="Checkpoint and model have different norms",
        explanation="A placement flag that differs from training's builds norms that were never trained, or leaves out "
        "those that were.",
        reference="Xiong et al. 2020, arXiv:2002.04745, table 1: the final norm is what Pre-LN has beyond Post-LN",
        check=checkpoint_tensors,
        needs=(a_checkpoint,),
    ),
    Rule(
        id="untrained-norm",
        severity=Severity.ERROR,
        title="A norm that was never trained among norms that were",
        explanation="Loading without strictness leaves it at its initial gain of 1, and the weights beside it were "
        "trained without it.",
        reference="Xiong et al. 2020, arXiv:2002.04745, table 1",
        check=untrained_norm,
    ),
)
