"""The registry, and what every registered placement must keep to."""

import pytest
import torch

from normscope.model import Context, EncoderDecoder, Layout, ModelConfig, Stack, StackConfig
from normscope.placement import (
    Placement,
    StackShape,
    named,
    register,
    registered,
    registry as registering,
)
from normscope.placement.reading import read
from normscope.placement.registry import StandIn, stand_in
from placement.expected import expected
from stacks import small_model, small_stack


class Own(Placement):
    name, title, citation, year = "own", "Own", "nobody", 2026

    def join(self, x, sublayer, norm):
        return norm(x + sublayer(x))


class TestRegister:
    def test_known_in_alphabetical_order(self):
        assert list(registered()) == sorted(registered())
        assert {"deepnorm", "post-ln", "pre-ln", "residual"} <= set(registered())
        assert all(placement.name == name for name, placement in registered().items())

    def test_unknown_name(self):
        with pytest.raises(ValueError) as caught:
            named("post-lm")
        assert str(caught.value) == (
            "unknown placement 'post-lm'; did you mean 'post-ln'? `normscope placements` lists "
            "all, and --import FILE.py, or importing the file in Python, registers your own"
        )

    @pytest.mark.parametrize("written", ["Post-LN", "postln", "post_ln", "POST LN"])
    def test_a_name_written_in_another_way(self, written):
        assert named(written) is named("post-ln")
        assert ModelConfig(placement=written) == ModelConfig(placement="post-ln")

    def test_a_way_of_writing_that_two_names_share_is_refused(self, registry):
        register(type("Other", (Own,), {"name": "o-wn"}))
        register(Own)
        assert named("own") is Own
        with pytest.raises(ValueError, match="unknown placement 'OWN'"):
            named("OWN")

    def test_a_new_one_is_known_at_once(self, registry):
        assert register(Own) is Own
        assert named("own") is Own
        assert "own" in registered()

    def test_the_same_class_twice_is_no_clash(self, registry):
        register(Own)
        again = type(
            "Own", (Own,), {"__module__": Own.__module__, "__qualname__": Own.__qualname__}
        )
        assert named(register(again).name) is again

    def test_the_same_class_of_a_session_without_a_file_is_no_clash(self, registry):
        """A notebook's cell that is run again, whose module nothing has imported."""
        made = {"__module__": "a_cell", "__qualname__": "Own"}
        for _ in range(2):
            again = register(type("Own", (Own,), made))
        assert named("own") is again
        with pytest.raises(ValueError, match=r"'own' is taken by a_cell\.Own"):
            register(Own)

    def test_a_placement_whose_file_was_not_run_has_a_name_and_no_model(self, monkeypatch):
        monkeypatch.setattr(registering, "_STAND_INS", {})
        for name in ("theirs", "post-ln", "own"):
            stand_in(name, "theirs.py")
        theirs = named("theirs")
        assert (theirs.title, theirs.shown) == (
            "theirs",
            "not shown: theirs.py, which has it, was not run",
        )
        with pytest.raises(ValueError, match=r"'theirs' is one of theirs\.py, which was not run"):
            theirs(StackShape(kind="encoder", width=8, encoder_blocks=1))
        assert "theirs" not in registered()
        assert not issubclass(named("post-ln"), StandIn)
        with pytest.raises(ValueError, match="unknown placement 'own'"):
            named("own")

    def test_a_taken_name_is_refused(self, registry):
        taken = type("Other", (Own,), {"name": "post-ln"})
        with pytest.raises(
            ValueError,
            match=r"'post-ln' is taken by normscope\.placement\.formulas\.[a-z_]+\.PostLN",
        ):
            register(taken)
        assert named("post-ln") is not taken

    @pytest.mark.parametrize("attribute", ["name", "title", "citation", "year"])
    def test_a_missing_attribute(self, registry, attribute):
        rest = {"name": "own", "title": "Own", "citation": "nobody", "year": 2026}
        del rest[attribute]
        with pytest.raises(ValueError, match=f"placement class Bare must set `{attribute}`"):
            register(type("Bare", (Placement,), rest))

    def test_variants_are_of_something_registered_that_is_none_itself(self):
        variants = {
            name: placement.variant_of
            for name, placement in registered().items()
            if placement.variant_of
        }
        assert set(variants.values()) <= set(registered()) - set(variants)

    def test_titles_tell_all_apart(self):
        assert len({placement.title for placement in registered().values()}) == len(registered())


def without_effect(model: EncoderDecoder) -> set[str]:
    """Parameters on which no output depends, because a softmax does not see what moves all its
    scores alike.

    The bias of the keys where no norm follows it, that of a norm of keys, and what the placement is
    expected to leave idle.
    """
    known = expected(model.config.placement)
    names = [name for name, _ in model.named_parameters()]
    normed = "norm_key(key)" in known.formula
    found = set() if normed else {n for n in names if n.endswith(".f.key.bias")}
    found |= {n for n in names if ".norm.key." in n and n.endswith(".bias")}
    return found | {n for n in names if n.endswith(known.idle)}


@pytest.mark.parametrize("name", registered())
class TestEveryPlacement:
    def test_deep_stack_is_finite_in_float32(self, name):
        torch.manual_seed(0)
        # The encoder of an encoder-decoder: every placement is defined for it.
        shape = StackShape(
            kind="encoder", width=16, ffn_width=32, heads=2, encoder_blocks=24, decoder_blocks=24
        )
        stack = Stack(named(name)(shape), StackConfig())
        layout = Layout(torch.tensor([3, 5]))
        x_ND = torch.randn(8, 16, requires_grad=True)
        output = stack(x_ND, Context(layout=layout))
        assert output.shape == (8, 16)
        output.square().sum().backward()
        assert output.isfinite().all()
        assert x_ND.grad.isfinite().all()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in stack.parameters())

    def test_no_parameter_twice_and_none_unused(self, name):
        model = small_model(name, "as-placement")
        layout = Layout(torch.tensor([3, 2]))
        tokens = torch.tensor([4, 5, 6, 7, 8])
        model.logits(model(tokens, layout, tokens, layout)).square().sum().backward()
        assert all(p.grad is not None for p in model.parameters())
        # What cancels exactly on paper leaves some rounding, far below every other gradient.
        still = {n for n, p in model.named_parameters() if p.grad.abs().max() < 1e-8}
        assert still == without_effect(model)
        assert (
            len(list(model.parameters()))
            == len(list(model.named_parameters(remove_duplicate=False))) - 1
        ), "the shared embedding alone has two names"

    def test_the_formula_of_every_stack_is_read(self, name):
        for kind in ("encoder", "decoder"):
            stack = StackShape(
                kind=kind, width=8, ffn_width=12, heads=2, encoder_blocks=3, decoder_blocks=2
            )
            reading = read(named(name)(stack))
            assert [[s.site.kind for s in block] for block in reading.blocks] == [
                list(stack.kinds)
            ] * stack.blocks
            assert [[s.site.number for s in block] for block in reading.blocks] == [
                [*range(b * len(stack.kinds) + 1, (b + 1) * len(stack.kinds) + 1)]
                for b in range(stack.blocks)
            ]

    def test_the_stream_is_found_in_every_state(self, name):
        """`hidden` of what each block returns has the stream's shape."""
        model = small_model(name, "as-placement")
        states = []
        for block in model.encoder.blocks:
            block.register_forward_hook(lambda _, inputs, output: states.append(output))
        model.encode(torch.tensor([4, 5, 6, 7, 8]), Layout(torch.tensor([3, 2])))
        assert [tuple(model.encoder.placement.hidden(state).shape) for state in states] == [
            (5, 12)
        ] * 2
        assert all(
            len(state) == len(model.encoder.placement.streams)
            for state in states
            if isinstance(state, tuple)
        )


# BranchNorm, Admin and KEEL end in a norm as Post-LN does, so that a stack's output is normed
# whatever enters it.
@pytest.mark.parametrize(
    "name", ["post-ln", "deepnorm", "admin", "admin-log-n", "b2t", "branch-norm", "ds-init", "keel"]
)
def test_post_output_is_normalised_whatever_the_input(name):
    torch.manual_seed(0)
    shape = StackShape(kind="encoder", width=64, ffn_width=64, heads=2, encoder_blocks=2)
    stack = Stack(named(name)(shape), StackConfig()).double()
    layout = Layout(torch.tensor([3, 5]))
    output = stack(100 * torch.randn(8, 64, dtype=torch.float64), Context(layout=layout))
    torch.testing.assert_close(
        output.mean(-1), torch.zeros(8, dtype=torch.float64), rtol=0, atol=1e-12
    )
    # ε = 1e-5 beside a variance of 1 or more: 1 - 5e-6 at most.
    torch.testing.assert_close(
        output.std(-1, correction=0), torch.ones(8, dtype=torch.float64), rtol=1e-5, atol=0
    )


@pytest.mark.parametrize("name", ["attn-res", "attn-res-block"])
def test_attention_residuals_start_from_a_mean_and_learn_their_queries_first(name):
    """While a query is 0 the gain of its keys' norm has no gradient; the query has, but for that of
    one value alone.
    """
    config = ModelConfig(
        placement=name,
        width=12,
        ffn_width=20,
        heads=3,
        encoder_blocks=2,
        decoder_blocks=2,
        dropout=0,
    )
    torch.manual_seed(0)
    model = EncoderDecoder(config, 20, 20).double()
    tokens, layout = torch.tensor([4, 5, 6, 7]), Layout(torch.tensor([4]))
    model.logits(model(tokens, layout, tokens, layout)).square().sum().backward()
    still = {n for n, p in model.named_parameters() if not p.grad.any() and ".f." not in n}
    firsts = {f"{stack}.blocks.0.attention.placed.query" for stack in ("encoder", "decoder")}
    keys = {n for n, _ in model.named_parameters() if ".norm.key." in n}
    assert len(keys) == 2 * (4 + 1 + 6 + 1)
    assert still == firsts | keys


def test_what_a_schedule_lets_in_is_out_before_the_first_update():
    found = {}
    for name, placement in registered().items():
        shape = StackShape(
            kind="encoder", width=8, ffn_width=12, heads=2, encoder_blocks=2, decoder_blocks=2
        )
        if scheduled := read(placement(shape)).schedules:
            found[name] = scheduled
    assert {"pre-to-post", "branch-norm"} <= found.keys()
    assert all(list(scheduled.values()) == [0.0] for scheduled in found.values())


def test_a_stack_reads_every_scheduled_number_once():
    model = small_model("pre-to-post")
    assert [name for name, _ in model.named_buffers() if "schedules" in name] == [
        "encoder.schedules.post",
        "decoder.schedules.post",
    ]
    assert [n for n, _ in small_stack("branch-norm", "encoder", 2).named_buffers()] == [
        "schedules.branch_scale"
    ]
