"""The law of movement: every trainable parameter of a copy moves under the user's optimiser."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from normscope import diagnose
from normscope.doctor.result import Finding

VOCABULARY, WIDTH, BLOCKS = 24, 16, 4
IDS = torch.randint(1, VOCABULARY, (4, 9), generator=torch.Generator().manual_seed(0))


class Attention(nn.Module):
    def __init__(self, gain: float) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gain_q, self.gain_k = (nn.Parameter(torch.full((WIDTH,), gain)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        q = functional.rms_norm(self.q(x), (WIDTH,)) * self.gain_q
        k = functional.rms_norm(self.k(x), (WIDTH,)) * self.gain_k
        causal = torch.ones(x.shape[1], x.shape[1]).tril().bool()
        scores = (q @ k.mT * WIDTH**-0.5).masked_fill(~causal, -math.inf)
        return self.o(scores.softmax(-1) @ self.v(x))


class Block(nn.Module):
    def __init__(self, gain: float) -> None:
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention = Attention(gain)
        self.up, self.down = nn.Linear(WIDTH, 32, bias=False), nn.Linear(32, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.n1(x))
        return x + self.down(functional.gelu(self.up(self.n2(x))))


class Decoder(nn.Module):
    def __init__(self, *, gain: float = 1.0, detached: bool = False, head: float = 0.02) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(gain) for _ in range(BLOCKS))
        self.norm = nn.RMSNorm(WIDTH)
        self.shift = nn.Linear(WIDTH, WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.detached = detached
        for weight in self.parameters():
            if weight.ndim > 1:
                nn.init.normal_(weight, std=0.02)
        nn.init.normal_(self.head.weight, std=head) if head else nn.init.zeros_(self.head.weight)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        shift = self.shift(x)
        return self.head(x + (shift.detach() if self.detached else shift))


class Adapted(nn.Module):
    """LoRA's two factors beside a frozen matrix."""

    def __init__(self, base: nn.Linear, first: float) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(first * torch.randn(4, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.a.T @ self.b.T


def adapted(first: float) -> Decoder:
    model = Decoder().requires_grad_(False)
    for block in model.blocks:
        block.attention.v = Adapted(block.attention.v, first)
    return model


def next_token(logits: Tensor, ids: Tensor = IDS) -> Tensor:
    rows = logits[:, :-1].float().flatten(0, 1)
    return functional.cross_entropy(rows, ids[: len(logits), 1:].flatten())


def adamw(model: nn.Module, rate: float = 1e-3) -> torch.optim.Optimizer:
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    return torch.optim.AdamW(trained, rate, weight_decay=0.0)


def told(
    rule: str,
    model: nn.Module,
    make: Callable[[nn.Module], torch.optim.Optimizer] = adamw,
) -> list[Finding]:
    found = diagnose(model, (IDS,), loss=next_token, optimizer=make(model), advise=False)
    return [one for one in found.findings if one.id == rule]


def test_two_factors_of_zero_never_move():
    (error,) = told("stuck-weights", adapted(0.0))
    assert error.severity == "error"
    assert "8 of 8 trainable parameters got a gradient of exactly 0" in error.message
    assert "blocks.[0–3].attention.v.a" in error.where
    assert told("stuck-weights", adapted(0.02)) == []


def test_gains_of_queries_and_keys_that_both_start_at_0_hold_their_matrices_too():
    (error,) = told("stuck-weights", Decoder(gain=0.0))
    assert error.severity == "error"
    assert f"{4 * BLOCKS} of " in error.message  # two gains and two matrices a block
    assert told("stuck-weights", Decoder()) == []


def test_what_stands_behind_a_head_of_zeros_opens_and_is_not_told():
    assert told("stuck-weights", Decoder(head=0.0)) == []


def test_a_weight_behind_a_detach_is_used_and_never_trained():
    (warning,) = told("cut-off-weights", Decoder(detached=True))
    assert (warning.severity, warning.where) == ("warning", "shift.weight")
    assert told("cut-off-weights", Decoder()) == []


class Proposing(nn.Module):
    """Logits that read a detached copy of proposals, which are returned for a loss of their own, as
    two-stage detectors have them.
    """

    def __init__(self, *, returned: bool) -> None:
        super().__init__()
        self.inner = Decoder()
        self.proposing = nn.Linear(WIDTH, WIDTH)
        self.returned = returned

    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        proposals = self.proposing(self.inner.embedding(ids))
        results = {"logits": self.inner(ids) + self.inner.head(proposals.detach())}
        return {**results, "proposals": proposals} if self.returned else results


@pytest.mark.parametrize("returned", [True, False])
def test_without_a_loss_what_another_part_of_the_output_may_train_is_not_cut_off(returned):
    found = diagnose(Proposing(returned=returned), (IDS,), advise=False).findings
    told_of = [one.where for one in found if one.id == "cut-off-weights"]
    assert told_of == ([] if returned else ["proposing.weight, proposing.bias"])


def test_a_loss_of_the_users_that_leaves_the_proposals_out_cuts_them_off():
    model = Proposing(returned=True)
    found = diagnose(
        model, (IDS,), loss=lambda results: next_token(results["logits"]), advise=False
    ).findings
    (warning,) = [one for one in found if one.id == "cut-off-weights"]
    assert "proposing.weight" in warning.where


def test_updates_below_half_the_step_of_bfloat16_leave_gains_at_1():
    (warning,) = told("rounded-updates", Decoder().bfloat16())
    assert warning.severity == "warning"
    assert "blocks.[0–3].n1.weight" in warning.where
    assert "0.0039 apart" in warning.message
    assert told("rounded-updates", Decoder()) == []
    # At twice the half step every update shows.
    assert told("rounded-updates", Decoder().bfloat16(), lambda m: adamw(m, 4e-3)) == []


def test_rows_of_an_embedding_that_the_batch_has_not_are_no_weights_that_stay():
    model = Decoder()
    model.embedding = nn.Embedding(5000, WIDTH)
    assert told("rounded-updates", model) == []


def grouped(rate: float) -> Callable[[nn.Module], torch.optim.Optimizer]:
    def make(model: nn.Module) -> torch.optim.Optimizer:
        odd = [*model.blocks[2].parameters()]
        rest = [p for n, p in model.named_parameters() if not n.startswith("blocks.2.")]
        groups = [{"params": odd, "lr": rate}, {"params": rest}]
        return torch.optim.AdamW(groups, lr=1e-3, weight_decay=0.0)

    return make


def test_a_block_at_a_hundred_times_the_rate_of_the_others():
    (warning,) = told("uneven-updates", Decoder(), grouped(0.1))
    assert warning.severity == "warning"
    assert "block 3 of 4" in warning.message
    assert "the rate 0.1, where others have 1e-3" in warning.message
    assert told("uneven-updates", Decoder(), grouped(3e-3)) == []


def test_a_head_that_no_group_holds_and_one_at_a_rate_of_0():
    def without_head(model: nn.Module) -> torch.optim.Optimizer:
        rest = [p for n, p in model.named_parameters() if n != "head.weight"]
        return torch.optim.AdamW(rest, 1e-3, weight_decay=0.0)

    def resting(model: nn.Module) -> torch.optim.Optimizer:
        made = without_head(model)
        made.add_param_group({"params": [model.head.weight], "lr": 0.0, "weight_decay": 0.0})
        return made

    (warning,) = told("unused-in-optimizer", Decoder(), without_head)
    assert (warning.severity, warning.where) == ("warning", "head.weight")
    (warning,) = told("unused-in-optimizer", Decoder(), resting)
    assert (warning.severity, warning.where) == ("warning", "head.weight")
    assert told("unused-in-optimizer", Decoder()) == []


def test_a_rate_that_a_scheduler_holds_at_0_at_first_is_taken_at_its_peak():
    def warmed(model: nn.Module) -> torch.optim.Optimizer:
        made = adamw(model)
        torch.optim.lr_scheduler.LambdaLR(made, lambda update: min(1.0, update / 10))
        assert made.param_groups[0]["lr"] == 0
        return made

    model = Decoder()
    assert told("unused-in-optimizer", model, warmed) == []
    assert told("rounded-updates", model, warmed) == []


@pytest.mark.filterwarnings("ignore:Detected call of")
def test_a_rate_that_makes_the_loss_infinite_is_an_error_unless_it_is_warmed_up():
    def far(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=1e30)

    (error,) = told("nonfinite-update", Decoder(), far)
    assert error.severity == "error"
    assert "not finite after 1 update" in error.message
    assert told("nonfinite-update", Decoder()) == []
