"""A training that is looked at throughout: gradients, updates and Jacobians of every block, and the last loss."""

# D = width
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from normscope.data.documents.corpus import DocumentCorpus
from normscope.measure.jacobian import Spectrum, jacobian_spectrum
from normscope.model import LanguageModel, Stack
from normscope.model.attention import Context, Layout
from normscope.placement import named
from normscope.placement.base import State
from normscope.tasks.language_model import LANGUAGE_MODEL, LanguageModelRunConfig

from ..engine.training import Training, TrainingPlan


def followed(
    config: LanguageModelRunConfig, corpus: DocumentCorpus, looks: Sequence[int], *, products: int, sequences: int
) -> dict[str, Any]:
    """Train once; values at the updates of `looks`, which rise from 1, are of a list for each, a number a block.

    gradient_norms: of all matrices of a block, of the update's batch, before the update. update_norms: of what the
    update adds to them. singular: of the block's Jacobian before the update (`block_spectra`), None where it has none.
    valid_nats: at every validation of the configuration. After a loss that is not finite nothing follows.
    """
    model = build(config, corpus)
    objective = LANGUAGE_MODEL.objective(config, corpus, torch.device("cpu"))
    duration = int(config.train.duration)
    plan = TrainingPlan(
        optimizer=config.optimizer, schedule=config.schedule, adaptive=config.adaptive, updates=duration
    )
    training = Training(model, LANGUAGE_MODEL.batches(config, corpus), plan)
    weights = block_matrices(model.decoder)
    batch = objective.train.batch(range(sequences))
    found: dict[str, Any] = {
        "gradient_norms": [],
        "update_norms": [],
        "singular": [],
        "train_nats": [],
        "valid_nats": [],
    }
    for update in range(1, duration + 1):
        loss = training.backward()
        found["train_nats"].append(loss)
        if not math.isfinite(loss):
            break
        if update in looks:
            found["gradient_norms"].append([_norm([weight.grad for weight in of]) for of in weights])
            spectra = block_spectra(model, batch.tokens_N, Layout(batch.lengths_B), products=products)
            found["singular"].append([None if one is None else plain_spectrum(one) for one in spectra])
            before = [[weight.detach().clone() for weight in of] for of in weights]
        training.step()
        if update in looks:
            found["update_norms"].append(
                [
                    _norm([now.detach() - then for now, then in zip(of, old, strict=True)])
                    for of, old in zip(weights, before, strict=True)
                ]
            )
        if update % int(config.train.validate_every) == 0:
            nats = objective.validate(model)["nll_nats"]
            found["valid_nats"].append(nats if math.isfinite(nats) else None)
    found["unigram_nats"] = LANGUAGE_MODEL.chance_nats(corpus)
    return found


def build(config: LanguageModelRunConfig, corpus: DocumentCorpus) -> LanguageModel:
    """The model with its embedding drawn from N(0, 1/D) times the placement's gain, as theory's setting `paper` has it.

    A decoder's own schemes draw it from N(0, 0.02²), GPT-2's.
    """
    model: LanguageModel = LANGUAGE_MODEL.build(config, corpus.tokeniser)
    generator = torch.Generator().manual_seed(config.seed)
    rows = model.embedding.weight
    gain = named(config.model.placement)(config.model.shape()).embedding_gain()
    if "embedding" not in model.decoder.placement.unit_vectors:
        with torch.no_grad():
            rows.copy_(torch.randn(rows.shape, generator=generator) * gain * rows.shape[1] ** -0.5)
    return model


def block_matrices(stack: Stack) -> list[list[nn.Parameter]]:
    """The weight matrices of every block's attention and feed-forward, which is what the theory gives gradients of."""
    return [
        [matrix.weight for sublayer in block.sublayers() for _, matrix in sublayer.f.matrices()]  # type: ignore[operator]
        for block in stack.blocks
    ]


def block_spectra(model: LanguageModel, tokens_N: Tensor, layout: Layout, *, products: int) -> list[Spectrum | None]:
    """Of each block's Jacobian, its whole state after by its whole state before, on a batch of packed tokens.

    None where the state that leaves a block is not shaped as the one that entered, as a history is that grows.
    """
    with recorded_blocks(model.decoder) as calls, torch.no_grad():
        model(tokens_N, layout)
    return [_spectrum(block, state, context, products) for block, state, context in calls]


@contextmanager
def recorded_blocks(stack: Stack) -> Iterator[list[tuple[nn.Module, State, Context]]]:
    """While it lasts, every call of a block appends the block, the state that entered, and the context."""
    calls: list[tuple[nn.Module, State, Context]] = []
    handles = [
        block.register_forward_pre_hook(lambda module, inputs: calls.append((module, inputs[0], inputs[1])))
        for block in stack.blocks
    ]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _spectrum(block: nn.Module, state: State, context: Context, products: int) -> Spectrum | None:
    parts = state if isinstance(state, tuple) else (state,)
    with torch.no_grad():
        after = block(state, context)
    ends = after if isinstance(after, tuple) else (after,)
    if [_shape(part) for part in parts] != [_shape(end) for end in ends] or None in map(_shape, parts):
        return None
    widths = [part.shape[-1] for part in parts]

    def f(x_ND: Tensor) -> Tensor:
        pieces = torch.split(x_ND, widths, dim=-1)
        out = block(pieces if isinstance(state, tuple) else pieces[0], context)
        return torch.cat(out, -1) if isinstance(out, tuple) else out

    return jacobian_spectrum(f, torch.cat(parts, -1), steps=products)


def _shape(part: Any) -> torch.Size | None:
    return part.shape if isinstance(part, Tensor) else None


def plain_spectrum(spectrum: Spectrum) -> Mapping[str, float]:
    """What the study keeps of one."""
    return {"root_mean_square": spectrum.root_mean_square, "variation": spectrum.variation, "peak": spectrum.peak}


def _norm(tensors: Sequence[Tensor | None]) -> float:
    return float(torch.stack([t.double().square().sum() for t in tensors if t is not None]).sum().sqrt())
