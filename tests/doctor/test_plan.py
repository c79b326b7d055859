"""What a diagnosis plans is what it then tells of."""

import torch

import normscope
from doctor.bugs import both
from doctor.wired import pre
from normscope.doctor.advise.short_run import Probing
from normscope.doctor.diagnose import forward_passes


def test_every_stage_that_takes_long_was_planned():
    tokens = torch.arange(12).reshape(2, 6)
    model, told = both(pre)(), []

    def loss(logits):
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    normscope.diagnose(
        model,
        tokens,
        loss=loss,
        probing=Probing(batches=lambda number: tokens, updates=30),
        watch=lambda stage, done, total: told.append(stage),
    )
    planned = forward_passes(probe_updates=30)
    assert [stage for stage in dict.fromkeys(told) if stage not in ("rules", "prediction")] == list(planned)
    assert planned["short trainings"] == 90
    assert forward_passes() == {"streams and gradients": planned["streams and gradients"]}
