"""What the study of real text measures: one model on one batch, plain numbers out."""

from typing import Any

from normscope.data.parallel.batches import TranslationBatch
from normscope.measure import depth_points, gradient_norms, recording, stream_moments
from normscope.model import EncoderDecoder, ModelConfig
from normscope.tasks.translation import TRANSLATION, TranslationObjective, TranslationRunConfig
from normscope.train.device import seed_micro_batch

from ..figure_3.measure import STACKS, matrices, only_trainable


def measured_norms(
    config: ModelConfig, seed: int, task: TranslationObjective, batch: TranslationBatch
) -> dict[str, Any]:
    """By stack: q after every block from the embedding on, and the norm of every W2's gradient."""
    model: EncoderDecoder = TRANSLATION.build(TranslationRunConfig(seed=seed, model=config), task.corpus.codec)
    seed_micro_batch(seed, 0)
    stacks = {kind: getattr(model, kind) for kind in STACKS}
    weights = {kind: matrices(model)["W2", kind] for kind in STACKS}
    points = {
        f"{kind} {name}": point
        for kind, stack in stacks.items()
        for name, point in depth_points(stack.blocks, pick=stack.placement.hidden).items()
    }
    model.train()
    names = only_trainable(model, [weight for several in weights.values() for weight in several])
    with recording(points, lambda x_ND: stream_moments(x_ND).q) as stream:
        loss = task.loss_sums(model, batch)[0] / batch.target_tokens
    loss.backward()  # type: ignore[no-untyped-call]
    norms = gradient_norms(model)
    return {
        kind: {
            "q": [stream[f"{kind} x_{depth}"][0] for depth in range(len(stack.blocks) + 1)],
            "ffn_out": [norms[names[weight]] for weight in weights[kind]],
        }
        for kind, stack in stacks.items()
    }
