"""Measurements during training: against a model that notes the same itself, and without a trace in
the training.
"""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from normscope.monitor import Monitor
from normscope.monitor.measuring import is_due

WIDTH, BLOCKS, TOKENS = 16, 3, 5
# B = sequences, T = tokens, D = width, V = vocabulary
KINDS = ("attention", "feed_forward")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixer = nn.MultiheadAttention(WIDTH, 2, dropout=0.1, batch_first=True)
        self.ffn = nn.Sequential(
            nn.Linear(WIDTH, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, WIDTH)
        )

    def attention(self, x_BTD: Tensor) -> Tensor:
        y_BTD = self.norm_1(x_BTD)
        return self.mixer(y_BTD, y_BTD, y_BTD)[0]

    def feed_forward(self, x_BTD: Tensor) -> Tensor:
        return self.ffn(self.norm_2(x_BTD))


class Noting(nn.Module):
    """Pre-LN, whose forward pass can note each sub-layer's stream and branch, and its end."""

    def __init__(self, order: tuple[str, ...] = KINDS) -> None:
        super().__init__()
        self.order = order
        self.embedding = nn.Embedding(11, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.final = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 11)

    def forward(self, ids_BT: Tensor, notes: list[Tensor] | None = None) -> Tensor:
        x_BTD = self.embedding(ids_BT)
        notes = [] if notes is None else notes
        for block in self.blocks:
            for kind in self.order:
                f_BTD = getattr(block, kind)(x_BTD)
                notes += [x_BTD, f_BTD]
                x_BTD = x_BTD + f_BTD
        notes.append(self.final(x_BTD))
        return self.head(notes[-1])


def model_and_ids() -> tuple[Noting, Tensor]:
    torch.manual_seed(0)
    model = Noting()
    return model, torch.randint(0, 11, (4, TOKENS))


def trained(updates: int, monitor_every: int | None) -> tuple[Noting, list[dict[str, float]]]:
    """With dropout, so that one random number drawn elsewhere would change every later weight."""
    model, ids_BT = model_and_ids()
    monitor = (
        None
        if monitor_every is None
        else Monitor(model=model, inputs=ids_BT, every_updates=monitor_every)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    measured = []
    for update in range(1, updates + 1):
        nn.functional.cross_entropy(model(ids_BT)[:, :-1].mT, ids_BT[:, 1:]).backward()
        if monitor is not None:
            measured.append(monitor(update))
        optimizer.step()
        if monitor is not None:
            measured[-1] |= monitor.stepped(update)
        optimizer.zero_grad()
    return model, measured


def test_every_name_and_value_is_what_the_model_notes_itself():
    model, ids_BT = model_and_ids()
    nn.functional.cross_entropy(model(ids_BT)[:, :-1].mT, ids_BT[:, 1:]).backward()
    found = Monitor(model=model, inputs=ids_BT)(1)
    notes: list[Tensor] = []
    exact = copy.deepcopy(model).double().eval()
    with torch.no_grad():
        exact(ids_BT, notes)
    wanted = {
        "normscope/blocks/source_square": square(notes[0]),
        "normscope/blocks/end_square": square(notes[-1]),
        "normscope/blocks/end_correlation": mean_cosine(notes[-1]),
        "normscope/blocks/dead_sublayers": 0.0,
        "normscope/blocks/saturated_sublayers": 0.0,
    }
    for number, (x_BTD, f_BTD) in enumerate(zip(notes[:-1:2], notes[1::2], strict=True)):
        block, kind = model.blocks[number // 2], KINDS[number % 2]
        parameters = [
            p
            for p in (block.mixer if kind == "attention" else block.ffn).parameters()
            if p.ndim > 1
        ]
        wanted |= {
            f"normscope/blocks/block_{number // 2 + 1:02}/{kind}/{name}": value
            for name, value in {
                "stream_square": square(x_BTD),
                "share": square(f_BTD) / (square(f_BTD) + square(x_BTD)),
                "correlation": mean_cosine(x_BTD),
                "gradient_norm": math.sqrt(
                    sum(float(p.grad.double().square().sum()) for p in parameters)
                ),
                **still(exact.blocks[number // 2], kind, x_BTD),
            }.items()
        }
    assert found == pytest.approx(wanted, rel=1e-4, abs=1e-6)
    assert found.keys() == wanted.keys()


def mean_cosine(x_BTD: Tensor) -> float:
    unit_BTD = x_BTD / x_BTD.norm(dim=-1, keepdim=True)
    cosines_BTT = unit_BTD @ unit_BTD.mT
    return float(
        (cosines_BTT.sum() - cosines_BTT.diagonal(dim1=1, dim2=2).sum())
        / (len(x_BTD) * TOKENS * (TOKENS - 1))
    )


def still(block: Block, kind: str, x_BTD: Tensor) -> dict[str, float]:
    """Relative entropy of attention's weights, or the share of hidden units that no token moves."""
    with torch.no_grad():
        if kind == "attention":
            y_BTD = block.norm_1(x_BTD)
            weights = block.mixer(y_BTD, y_BTD, y_BTD, average_attn_weights=False)[1]
            return {
                "attention_entropy": float(-(weights * weights.log()).sum(-1).mean())
                / math.log(TOKENS)
            }
        hidden = block.ffn[:2](block.norm_2(x_BTD)).reshape(-1, 24)
        return {"idle_units": float((hidden.amax(0) == hidden.amin(0)).double().mean())}


def square(x_BTD: Tensor) -> float:
    return float(x_BTD.double().square().mean())


def test_a_training_with_a_monitor_is_the_training_without_one():
    with_monitor, measured = trained(5, monitor_every=2)
    without, _ = trained(5, monitor_every=None)
    assert [bool(values) for values in measured] == [True, False, True, False, True]
    assert measured[0] != measured[2]
    for mine, other in zip(
        with_monitor.state_dict().values(), without.state_dict().values(), strict=True
    ):
        assert torch.equal(mine, other)
    assert with_monitor.training
    assert all(module.training for module in with_monitor.modules())
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    assert not any(getattr(module, name) for module in with_monitor.modules() for name in hooks)
    assert not any(
        p._post_accumulate_grad_hooks or p._backward_hooks for p in with_monitor.parameters()
    )


def test_a_step_is_measured_against_the_weights_before_it():
    model, ids_BT = model_and_ids()
    model(ids_BT).square().sum().backward()
    monitor = Monitor(model=model, inputs=ids_BT, every_updates=2)
    monitor(1)
    before = copy.deepcopy(model)
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    found = monitor.stepped(1)
    at = "normscope/blocks/block_02/feed_forward/"
    new, old = (
        torch.cat([m.blocks[1].ffn[n].weight.detach().double().flatten() for n in (0, 3)])
        for m in (model, before)
    )
    moved = float((new - old).norm())
    wanted = {f"{at}update_norm": moved, f"{at}update_ratio": moved / float(old.norm())}
    assert {name: value for name, value in found.items() if name.startswith(at)} == pytest.approx(
        wanted, rel=1e-4
    )
    assert len(found) == 2 * 2 * BLOCKS
    # Neither twice, nor for an update that was not measured.
    assert monitor.stepped(1) == {}
    monitor(1)
    monitor(2)
    assert monitor.stepped(2) == {}


def stuck(break_it: Callable[[Noting], None]) -> dict[str, float]:
    """On tokens of which none is there twice: attention has to choose between tokens that are
    alike.
    """
    model, _ = model_and_ids()
    ids_BT = torch.stack([torch.randperm(11)[:TOKENS] for _ in range(4)])
    with torch.no_grad():
        break_it(model)
    nn.functional.cross_entropy(model(ids_BT).mT, ids_BT).backward()
    return Monitor(model=model, inputs=lambda m: nn.functional.cross_entropy(m(ids_BT).mT, ids_BT))(
        1
    )


def test_dead_and_saturated_sub_layers_are_counted():
    def dead(model: Noting) -> None:
        model.blocks[0].ffn[3].weight.zero_()
        model.blocks[0].ffn[3].bias.zero_()

    def idle(model: Noting) -> None:
        model.blocks[1].ffn[0].bias.fill_(-100.0)

    def sharp(model: Noting) -> None:
        model.blocks[2].mixer.in_proj_weight.mul_(30)

    at = "normscope/blocks/"
    assert stuck(dead)[at + "dead_sublayers"] == 1
    found = stuck(idle)
    # Nothing passes the activation, and so no gradient either.
    assert found[at + "block_02/feed_forward/idle_units"] == 1
    assert (found[at + "dead_sublayers"], found[at + "saturated_sublayers"]) == (1, 1)
    found = stuck(sharp)
    assert found[at + "block_03/attention/attention_entropy"] < 0.02
    assert (found[at + "dead_sublayers"], found[at + "saturated_sublayers"]) == (0, 1)


def test_masked_keys_are_no_choice():
    """Causal attention whose scores are all alike has the largest entropy that each query can
    have.
    """
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 24, batch_first=True)
    with torch.no_grad():
        layer.self_attn.in_proj_weight[: 2 * WIDTH].zero_()
    mask = nn.Transformer.generate_square_subsequent_mask(TOKENS)
    x_BTD = torch.randn(2, TOKENS, WIDTH)
    found = Monitor(model=layer, inputs=lambda m: m(x_BTD, src_mask=mask))(1)
    assert found["normscope/stack/block_01/attention/attention_entropy"] == pytest.approx(
        1, abs=1e-5
    )


def test_the_size_of_the_logits_is_taken_before_the_softmax():
    model, ids_BT = model_and_ids()
    logits = model.eval()(ids_BT).detach().double()
    wanted = float(logits.var(-1, correction=0).mean().sqrt())
    run = lambda m: nn.functional.cross_entropy(m(ids_BT).mT, ids_BT)  # noqa: E731
    assert Monitor(model=model, inputs=run)(1)["normscope/logit_deviation"] == pytest.approx(
        wanted, rel=1e-4
    )


def test_gradients_that_are_given_come_before_those_of_the_parameters():
    model, ids_BT = model_and_ids()
    model(ids_BT).sum().backward()
    monitor = Monitor(model=model, inputs=ids_BT)
    first = "blocks.0.ffn.0.weight"
    found = monitor(1, gradients={first: 3.0, "blocks.0.ffn.3.weight": 4.0})
    norms = {name: value for name, value in found.items() if name.endswith("gradient_norm")}
    assert norms == {"normscope/blocks/block_01/feed_forward/gradient_norm": 5.0}
    model.zero_grad()
    assert not any(name.endswith("gradient_norm") for name in monitor(101))


def test_a_weight_that_stops_being_finite_ends_no_training():
    model, ids_BT = model_and_ids()
    monitor = Monitor(model=model, inputs=ids_BT, every_updates=1)
    assert monitor(1)
    with torch.no_grad():
        model.blocks[1].ffn[0].weight[0, 0] = math.nan
    with pytest.warns(
        RuntimeWarning, match=r"no measurement at update 2: blocks\.1\.ffn\.0\.weight has values"
    ):
        assert monitor(2) == {}
    with pytest.raises(ValueError, match="not finite"):
        Monitor(model=model, inputs=ids_BT)(1)


def test_names_are_those_of_the_stacks():
    torch.manual_seed(0)
    model = nn.Transformer(WIDTH, 2, 2, 2, 24, batch_first=True)
    x_BTD = torch.randn(2, TOKENS, WIDTH)
    found = Monitor(model=model, inputs=(x_BTD, x_BTD))(1)
    shares = [name for name in found if name.endswith("/share")]
    assert shares == [
        f"normscope/{stack}.layers/block_{block}/{kind}/share"
        for stack, kinds in (
            ("encoder", KINDS),
            ("decoder", ("attention", "cross_attention", "feed_forward")),
        )
        for block in ("01", "02")
        for kind in kinds
    ]


def test_sub_layers_of_one_kind_in_a_block_are_numbered():
    _, ids_BT = model_and_ids()
    model = Noting(order=("feed_forward", "attention", "feed_forward"))
    names = [
        name.split("/")[2:4]
        for name in Monitor(model=model, inputs=ids_BT)(1)
        if name.endswith("/share")
    ]
    kinds = ("feed_forward", "attention", "feed_forward_2")
    assert names == [[f"block_{block:02}", kind] for block in (1, 2, 3) for kind in kinds]


def test_updates_are_counted_from_one():
    assert [update for update in range(1, 12) if is_due(update, 5)] == [1, 6, 11]


def test_what_cannot_work_is_refused_in_words():
    model, ids_BT = model_and_ids()
    with pytest.raises(ValueError, match="every_updates=0: measure every 1st"):
        Monitor(model=model, inputs=ids_BT, every_updates=0)
    with pytest.raises(ValueError, match="nothing to measure the model with"):
        Monitor(model=model)(1)
