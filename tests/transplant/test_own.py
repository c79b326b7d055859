"""Models of one's own under other placements: to the last bit what a forward written by hand
gives.
"""

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import normscope
from normscope.doctor import find_stacks
from transplant.hand_written import GPT, Block, InPlace, Kept, PostBlock, by_hand, ids, perturb

BY_HAND = (
    "pre-ln",
    "post-ln",
    "peri-ln",
    "sandwich",
    "deepnorm",
    "lns",
    "rezero",
    "reordered",
    "keel",
    "layer-scale",
)


def gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def loss_of(logits: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), ids().flatten())


@pytest.mark.sampled(one_in=14)
@pytest.mark.parametrize("style", [Block, InPlace, Kept])
@pytest.mark.parametrize("placement", BY_HAND)
def test_a_placement_is_what_one_writes_by_hand(placement: str, style: type[nn.Module]) -> None:
    """However the block writes its sums; all weights have been moved, the added ones too."""
    torch.manual_seed(0)
    model = perturb(normscope.transplant(GPT(style), placement, inputs=ids()))
    outputs, expected = model(ids()), by_hand(model, placement)
    assert torch.equal(outputs, expected)
    assert_same(gradients(model, loss_of(outputs)), gradients(model, loss_of(expected)))
    assert {one.placement for one in find_stacks(model, ids())[0].sublayers} | {placement} <= {
        *find_stacks(model, ids())[0].sublayers[-1].also,
        find_stacks(model, ids())[0].placement,
    }


def test_pre_ln_that_turns_into_post_ln_does_so_in_a_model_of_ones_own() -> None:
    """At 0 its own bits, at 1 those of Post-LN written out, the norm at the end included."""
    model = perturb(GPT())
    before = model(ids())
    normscope.transplant(model, "pre-to-post", inputs=ids(), initialise="keep")
    assert torch.equal(model(ids()), before)
    x = model.table(ids())
    for block in model.blocks:
        block.placed.schedules.post.fill_(1.0)
        x = block.placed.attention.norms.post(x + block.attn(x))
        x = block.placed.feed_forward.norms.post(x + block.mlp(x))
    assert torch.equal(model(ids()), model.head(x))


@pytest.mark.parametrize("norm_first", [True, False])
def test_torchs_encoder_becomes_its_own_twin(norm_first: bool) -> None:
    """Pre-LN made Post-LN, and the other way round, equal torch's own flag: an oracle that none of
    us wrote.
    """
    x = torch.randn(2, 7, 32, generator=torch.Generator().manual_seed(0))

    def encoder(first: bool, final: bool) -> nn.TransformerEncoder:
        layer = nn.TransformerEncoderLayer(
            32, 4, 64, dropout=0.0, batch_first=True, norm_first=first
        )
        norm = nn.LayerNorm(32) if final else None
        return nn.TransformerEncoder(layer, 3, norm, enable_nested_tensor=False)

    model = encoder(norm_first, norm_first)
    twin = encoder(not norm_first, not norm_first)
    normscope.transplant(model, "post-ln" if norm_first else "pre-ln", inputs=x)
    perturb(model)
    renamed = {
        name.replace("layers.2.placed.finish.norms.main", "norm"): p
        for name, p in model.state_dict().items()
    }
    renamed = {
        name: p
        for name, p in renamed.items()
        if norm_first is False or not name.startswith("norm.")
    }
    twin.load_state_dict(renamed)
    assert torch.equal(model(x), twin(x))
    theirs = gradients(twin, twin(x).square().sum())
    ours = gradients(model, model(x).square().sum())
    assert_same(
        {name.replace("layers.2.placed.finish.norms.main", "norm"): g for name, g in ours.items()},
        theirs,
    )
    with torch.no_grad():
        # Torch's fast path would take the norms' weights past their forward.
        assert torch.allclose(model.eval()(x), model.train()(x), atol=1e-6)


@pytest.mark.parametrize(
    ("style", "placement"), [(Block, "pre-ln"), (Kept, "pre-ln"), (PostBlock, "post-ln")]
)
def test_the_placement_that_a_model_has_changes_no_bit(
    style: type[nn.Module], placement: str
) -> None:
    model = perturb(GPT(style, final=placement == "pre-ln"))
    before = copy.deepcopy(model)
    normscope.transplant(model, placement, inputs=ids(), initialise="keep")
    assert model.transplanted.change == 0.0
    assert_same(gradients(model, loss_of(model(ids()))), gradients(before, loss_of(before(ids()))))
    assert list(model.state_dict()) == list(before.state_dict())


def test_untransplant_gives_the_old_model_back() -> None:
    model = perturb(GPT())
    before = copy.deepcopy(model)
    normscope.transplant(model, "rezero", inputs=ids(), initialise="keep")
    assert model.transplanted.change > 0.1
    assert not model.blocks[0].ln_1.weight.requires_grad
    assert set(before.state_dict()) < set(model.state_dict())
    assert normscope.untransplant(model) is model
    assert [type(one) for one in model.modules()] == [type(one) for one in before.modules()]
    assert [p.requires_grad for p in model.parameters()] == [
        p.requires_grad for p in before.parameters()
    ]
    assert list(model.state_dict()) == list(before.state_dict())
    assert torch.equal(model(ids()), before(ids()))
    assert vars(model).keys() == vars(before).keys()


def test_a_norm_keeps_its_trained_gains_in_its_own_part_alone() -> None:
    """After Pre-LN, a norm before F stays one; the new norm after F starts at 1, and so does one on
    the sum.
    """
    model = perturb(GPT())
    gains = model.blocks[0].ln_1.weight.clone()
    normscope.transplant(model, "peri-ln", inputs=ids(), initialise="keep")
    assert torch.equal(model.blocks[0].ln_1.weight, gains)
    assert torch.equal(model.blocks[0].placed.attention.norms.after.weight, torch.ones(32))
    normscope.transplant(normscope.untransplant(model), "post-ln", inputs=ids(), initialise="keep")
    assert torch.equal(model.blocks[0].placed.attention.norms.main.weight, torch.ones(32))
    assert "blocks.0.ln_1.weight" in model.transplanted.frozen


def test_weights_are_drawn_as_the_placement_wants_them() -> None:
    """DeepNorm's gain is on values and outputs and not on queries and keys, within one packed
    matrix.
    """
    torch.manual_seed(0)
    model = normscope.transplant(GPT(blocks=4), "deepnorm", inputs=ids())
    query, key, value = model.blocks[1].attn.qkv.weight.chunk(3)
    gain, glorot = (8 * 4) ** -0.25, (2 / 64) ** 0.5
    for matrix, std in (
        (query, glorot),
        (key, glorot),
        (value, gain * glorot),
        (model.blocks[1].attn.out.weight, gain * glorot),
    ):
        assert float(matrix.detach().std()) == pytest.approx(std, rel=0.1)
    assert float(model.blocks[1].mlp[0].weight.detach().std()) == pytest.approx(
        gain * (2 / 96) ** 0.5, rel=0.1
    )
    assert not model.blocks[1].attn.qkv.bias.any()


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("way", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@pytest.mark.parametrize("placement", ["peri-ln", "rezero", "mhc"])
def test_copies_and_pickles_are_whole(way, placement: str) -> None:
    model = perturb(normscope.transplant(GPT(), placement, inputs=ids()))
    other = way(model)
    assert torch.equal(other(ids()), model(ids()))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert other(ids()).any()
    assert other.head.weight is other.table.weight
    assert torch.equal(normscope.untransplant(other)(ids()), other(ids()))


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("placement", ["peri-ln", "mhc"])
def test_activation_checkpointing_gives_the_same_gradients(placement: str, reentrant: bool) -> None:
    model = perturb(normscope.transplant(GPT(), placement, inputs=ids()))

    def logits(checkpointed: bool) -> Tensor:
        x = model.table(ids())
        for block in model.blocks:
            x = checkpoint(block, x, use_reentrant=reentrant) if checkpointed else block(x)
        return model.head(model.final(x))

    plain = gradients(model, loss_of(logits(False)))
    assert_same(gradients(model, loss_of(logits(True))), plain)


def twin(model: GPT, placement: str) -> nn.Module:
    """`normscope.place` of the model's own modules, with all that the formula asks for set to what
    the model has.
    """
    rows = [(block.attn, block.mlp) for block in model.blocks]
    made = normscope.place(
        placement, rows, width=32, initialisation="keep", heads=4, norm_epsilon=1e-5
    ).double()
    with torch.no_grad():
        for ours, block in zip(made.stack.blocks, model.blocks, strict=True):
            for kind in ours.kinds:
                sublayer = getattr(ours, kind)
                _set(sublayer.norm, sublayer.placed, block, kind)
            _set(nn.Module(), ours.placed, block, "block")
        _set(made.stack.start.norm, made.stack.start.placed, model.blocks[0], "start")
        _set(made.stack.finish.norm, made.stack.finish.placed, model.blocks[-1], "finish")
        if hasattr(made.stack.finish.norm, "main") and ("finish", "main") not in applied(
            model.blocks[-1]
        ):
            made.stack.finish.norm.main.load_state_dict(model.final.state_dict())
    return made


def applied(block: nn.Module) -> dict[tuple[str, str], nn.Module]:
    """The formula's norms in a block, those of the model among them."""
    added = {
        (place, name): norm
        for place in block.placed.places
        for name, norm in getattr(block.placed, place).norms.items()
    }
    return {**block.wiring.reused, **added}


def _set(norms: nn.Module, numbers: nn.Module, block: nn.Module, place: str) -> None:
    for name, norm in norms.named_children():
        if (place, name) in applied(block):
            norm.load_state_dict(applied(block)[place, name].state_dict())
    for name, number in numbers.items():
        number.copy_(getattr(block.placed, place).numbers[name])


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    "placement",
    [
        "residual",
        "hyper-connections",
        "mhc",
        "attn-res",
        "attn-res-block",
        "denseformer",
        "x0-residual",
        "variance-gate",
    ],
)
def test_streams_and_histories_are_those_of_place(placement: str) -> None:
    """Five updates in float64 of both, which share no line between the formula and the tensors."""
    torch.manual_seed(0)
    model = perturb(normscope.transplant(GPT(blocks=4), placement, inputs=ids())).double()
    # Its sub-layers are the model's own, so that it must be a copy.
    other = copy.deepcopy(model)
    theirs = twin(other, placement)

    def expected() -> Tensor:
        hidden = theirs(other.table(ids()))
        return other.head(hidden)

    weights = [*theirs.parameters(), other.table.weight]
    ours = torch.optim.SGD(model.parameters(), lr=0.05)
    own = torch.optim.SGD(list({id(one): one for one in weights}.values()), lr=0.05)
    for _ in range(5):
        outputs, wanted = model(ids()), expected()
        torch.testing.assert_close(outputs, wanted, rtol=1e-9, atol=1e-9)
        for optimizer, logits in ((ours, outputs), (own, wanted)):
            optimizer.zero_grad()
            loss_of(logits).backward()
            optimizer.step()


@pytest.mark.thorough
def test_compiled_whole_it_gives_the_same() -> None:
    model = perturb(normscope.transplant(GPT(blocks=2), "peri-ln", inputs=ids()))
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(ids()), model(ids()))


@pytest.mark.parametrize("initialise", ["draw", "keep"])
def test_an_optimiser_that_was_made_before_goes_on_as_one_made_afterwards(initialise: str) -> None:
    torch.manual_seed(0)
    model = perturb(GPT(blocks=2))
    early = torch.optim.Adam(model.parameters(), 1e-3)
    loss_of(model(ids())).backward()
    early.step()
    normscope.transplant(model, "peri-ln", inputs=ids(), initialise=initialise, optimizer=early)
    other = copy.deepcopy(model)
    late = torch.optim.Adam(other.parameters(), 1e-3)
    if initialise == "keep":  # what it knew of old parameters stays with them
        for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
            late.state[theirs] = copy.deepcopy(early.state[ours]) if ours in early.state else {}
    for one, optimizer in ((model, early), (other, late)):
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(one(ids())).backward()
            optimizer.step()
    assert {id(p) for group in early.param_groups for p in group["params"]} == set(
        map(id, model.parameters())
    )
    assert_same(dict(model.named_parameters()), dict(other.named_parameters()))
    assert not torch.equal(model.blocks[0].placed.attention.norms.after.weight, torch.ones(32))
    with pytest.raises(ValueError, match="optimizer holds parameters that the model does not have"):
        normscope.transplant(GPT(blocks=2), "peri-ln", inputs=ids(), optimizer=early)
