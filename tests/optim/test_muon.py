"""Muon: torch's own on matrices and AdamW elsewhere, to the bit; the size of its step; a state
saved by name.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from normscope.model import DecoderConfig, LanguageModel
from normscope.optim import OptimizerConfig, make_optimizer, roles
from normscope.optim.optimizers import Muon
from normscope.train.checkpoint import contents, save

STEPS = 5
CONFIG = OptimizerConfig(name="muon", peak_lr=0.02, weight_decay=0.1)


def model(seed: int = 0) -> LanguageModel:
    torch.manual_seed(seed)
    return LanguageModel(
        DecoderConfig(placement="mhc", width=16, ffn_width=32, heads=2, blocks=1, positions=8),
        vocabulary=11,
    )


def gradients(number: int, of: nn.Module) -> None:
    generator = torch.Generator().manual_seed(number)
    for parameter in of.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize(
    "config",
    [CONFIG, replace(CONFIG, muon_momentum=0.7, betas=(0.6, 0.8), epsilon=1e-3)],
    ids=["usual", "other"],
)
def test_matrices_move_by_torch_s_muon_and_all_else_by_its_adamw(config: OptimizerConfig) -> None:
    ours, theirs = model(), model()
    theirs.load_state_dict(ours.state_dict())
    optimizer, of = make_optimizer(ours, config), roles(theirs)
    by_role = {
        role: [p for name, p in theirs.named_parameters() if of[name] == role]
        for role in dict.fromkeys(of.values())
    }
    shared = {"lr": 0.02, "weight_decay": 0.1}
    momentum = config.muon_momentum
    muon = torch.optim.Muon(
        by_role["matrix"], **shared, momentum=momentum, adjust_lr_fn="match_rms_adamw"
    )
    adamw = torch.optim.AdamW(
        [
            {"params": members, "weight_decay": 0.1 if role == "embedding" else 0.0}
            for role, members in by_role.items()
            if role != "matrix"
        ],
        lr=0.02,
        betas=config.betas,
        eps=config.epsilon,
        fused=True,
    )
    for step in range(STEPS):
        for one in (ours, theirs):
            gradients(step, one)
        optimizer.step()
        muon.step()
        adamw.step()
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b), name


def test_the_step_is_an_orthogonal_one_of_adamw_s_size() -> None:
    """Singular values of about 0.2 √max(rows, columns) times the rate (Liu et al. 2025, section
    2.2).
    """
    weight = nn.Parameter(torch.ones(12, 8))
    optimizer = Muon([weight], lr=0.5)
    weight.grad = torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
    optimizer.step()
    # All of it: a decay that nobody asked for would be a part that is not orthogonal.
    step = weight.detach() - 1
    singular = torch.linalg.svdvals(step) / (0.5 * 0.2 * 12**0.5)
    # Five rounds at these coefficients bring them near 1, not to it, in bfloat16 (Jordan 2024).
    assert 0.6 < float(singular.min()) <= float(singular.max()) < 1.3
    turned = step @ torch.linalg.svd(weight.grad, full_matrices=False).Vh.T
    assert float((turned.T @ turned).fill_diagonal_(0).abs().max()) < 0.05


def test_the_rate_of_a_group_is_that_of_the_next_step() -> None:
    ours = model()
    optimizer = make_optimizer(ours, CONFIG)
    before = {name: p.detach().clone() for name, p in ours.named_parameters()}
    gradients(0, ours)
    for group in optimizer.param_groups:
        group["lr"] = 0.0 if group["role"] == "matrix" else 0.1
    optimizer.step()
    of = roles(ours)
    moved = {name for name, p in ours.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {name for name, role in of.items() if role != "matrix"}


def test_training_goes_on_from_a_checkpoint_to_the_bit(tmp_path: Path) -> None:
    whole = model()
    optimizer = make_optimizer(whole, CONFIG)
    for step in range(STEPS):
        if step == 2:
            found = save(tmp_path, step, contents(whole, optimizer, keeps=True), {})
        gradients(step, whole)
        optimizer.step()
    again = model(seed=1)
    found.load_model(again)
    other = make_optimizer(again, CONFIG)
    found.load_optimizer(again, other)
    for step in range(2, STEPS):
        gradients(step, again)
        other.step()
    assert all(
        torch.equal(a, b) for a, b in zip(whole.parameters(), again.parameters(), strict=True)
    )


def test_a_closure_gives_the_loss() -> None:
    weight = nn.Parameter(torch.eye(2))
    optimizer = Muon([weight], lr=0.1)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()
        return loss

    assert float(optimizer.step(closure).detach()) == 2.0
    assert float(closure().detach()) < 2.0


def test_a_vector_is_refused_under_muon_s_rule() -> None:
    with pytest.raises(ValueError, match="2D"):
        Muon([nn.Parameter(torch.zeros(3))])
