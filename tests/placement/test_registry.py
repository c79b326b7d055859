"""The registry, the printed formulas, and what every registered placement must keep to."""

import pytest
import torch

from normscope.model import Context, Layout, Stack, StackConfig
from normscope.placement import Placement, StackShape, named, register, registered
from normscope.placement.printing import formula
from normscope.placement.reading import read
from normscope.placement.symbol import Symbol
from stacks import small_model


class Own(Placement):
    name, title, citation, year = "own", "Own", "nobody", 2026


class TestRegister:
    def test_known_in_alphabetical_order(self):
        assert list(registered()) == sorted(registered())
        assert {"deepnorm", "post-ln", "pre-ln", "residual"} <= set(registered())
        assert all(placement.name == name for name, placement in registered().items())

    def test_unknown_name(self):
        with pytest.raises(ValueError) as caught:
            named("post_ln")
        assert str(caught.value) == (
            f"unknown placement 'post_ln'; choose one of {', '.join(registered())}, "
            "or register your own (--import FILE.py)"
        )

    def test_a_new_one_is_known_at_once(self, registry):
        assert register(Own) is Own
        assert named("own") is Own
        assert "own" in registered()

    def test_the_same_class_twice_is_no_clash(self, registry):
        register(Own)
        again = type("Own", (Own,), {"__module__": Own.__module__, "__qualname__": Own.__qualname__})
        assert named(register(again).name) is again

    def test_a_taken_name_is_refused(self, registry):
        taken = type("Other", (Own,), {"name": "post-ln"})
        with pytest.raises(ValueError, match=r"'post-ln' is taken by normscope\.placement\.post_ln\.PostLN"):
            register(taken)
        assert named("post-ln") is not taken

    @pytest.mark.parametrize("attribute", ["name", "title", "citation", "year"])
    def test_a_missing_attribute(self, registry, attribute):
        rest = {"name": "own", "title": "Own", "citation": "nobody", "year": 2026}
        del rest[attribute]
        with pytest.raises(ValueError, match=f"placement class Bare must set `{attribute}`"):
            register(type("Bare", (Placement,), rest))

    def test_without_a_formula(self):
        with pytest.raises(NotImplementedError, match="'own' must define join or block"):
            formula(Own)


class TestFormula:
    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("post-ln", "x ← norm(x + F(x))"),
            ("pre-ln", "x ← x + F(norm(x)); y = norm(x)"),
            ("deepnorm", "x ← norm(1.418 · x + F(x))"),
            ("residual", "x ← norm(x + F(x)); r ← r + F(x); y = x + norm(r)"),
        ],
    )
    def test_printed_from_itself(self, name, text):
        assert formula(named(name)) == text

    def test_skip_constants_of_the_stack(self):
        both = StackShape(kind="decoder", width=8, encoder_blocks=6, decoder_blocks=6)
        alone = StackShape(kind="encoder", width=8, encoder_blocks=12)
        assert formula(named("deepnorm"), both) == "x ← norm(2.06 · x + F(x))"
        assert formula(named("deepnorm"), alone) == "x ← norm(2.213 · x + F(x))"

    @pytest.mark.parametrize(
        ("build", "text"),
        [
            (lambda x, y, z: x + y + z, "x + y + z"),
            (lambda x, y, z: x + (y + z), "x + y + z"),
            (lambda x, y, z: x - y - z, "x - y - z"),
            (lambda x, y, z: x - (y - z), "x - (y - z)"),
            (lambda x, y, z: x - (y + z), "x - (y + z)"),
            (lambda x, y, z: (x - y) + z, "x - y + z"),
            (lambda x, y, z: x * (y + z), "x · (y + z)"),
            (lambda x, y, z: (x + y) * z, "(x + y) · z"),
            (lambda x, y, z: x * y + z, "x · y + z"),
            (lambda x, y, z: x / y / z, "x / y / z"),
            (lambda x, y, z: x / (y * z), "x / (y · z)"),
            (lambda x, y, z: x / (y / z), "x / (y / z)"),
            (lambda x, y, z: (x * y) / z, "x · y / z"),
            (lambda x, y, z: 2 * x - y / 3, "2 · x - y / 3"),
            (lambda x, y, z: 1 + x + 0.5, "1 + x + 0.5"),
            (lambda x, y, z: (1 - x) * y, "(1 - x) · y"),
            (lambda x, y, z: 1 - (x - 2), "1 - (x - 2)"),
        ],
    )
    def test_operators_and_brackets(self, build, text):
        x, y, z = (Symbol(name) for name in "xyz")
        assert str(build(x, y, z)) == text
        # What is printed means what was built: read the text back with numbers.
        numbers = {"x": 1.7, "y": -2.3, "z": 0.9}
        assert eval(text.replace("·", "*"), {}, numbers) == pytest.approx(build(*numbers.values()), rel=1e-14)

    def test_norms_parameters_and_places_are_named(self):
        class Everything(Own):
            def join(self, x, sublayer, norm):
                gate = sublayer.parameter("a", initial=0.0)
                return (1 - gate) * x + gate * norm.outer(sublayer(norm(x) / 2, output=norm.inner))

            def finish(self, state, end):
                return end.norm(state) - state

        assert formula(Everything) == (
            "x ← (1 - a) · x + a · norm_outer(F(norm(x) / 2, norm_inner(output))); y = norm(x) - x"
        )

    def test_kinds_apart_where_they_differ(self):
        class ByKind(Own):
            def join(self, x, sublayer, norm):
                return norm(x + sublayer(x)) if sublayer.site.kind == "attention" else x + sublayer(x)

        assert formula(ByKind) == "attention: x ← norm(x + F(x)); feed_forward: x ← x + F(x)"
        decoder = StackShape(kind="decoder", width=8, encoder_blocks=1, decoder_blocks=1)
        assert formula(ByKind, decoder) == (
            "attention: x ← norm(x + F(x)); cross_attention: x ← x + F(x); feed_forward: x ← x + F(x)"
        )

    def test_one_norm_at_two_widths_is_refused(self):
        class TwoWidths(Own):
            def join(self, x, sublayer, norm):
                return x + sublayer(norm(x), output=norm)

        shape = StackShape(kind="encoder", width=8, ffn_width=16, encoder_blocks=1)
        with pytest.raises(ValueError, match="norm 'main' is used at widths 8 and 16; give them two names"):
            read(TwoWidths(shape))


@pytest.mark.parametrize("name", registered())
class TestEveryPlacement:
    def test_formula_prints(self, name):
        assert "F(" in formula(named(name))

    def test_deep_stack_is_finite_in_float32(self, name):
        torch.manual_seed(0)
        shape = StackShape(kind="encoder", width=16, ffn_width=32, heads=2, encoder_blocks=24)
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
        model = small_model(name)
        layout = Layout(torch.tensor([3, 2]))
        tokens = torch.tensor([4, 5, 6, 7, 8])
        model.logits(model(tokens, layout, tokens, layout)).square().sum().backward()
        assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []
        assert len(list(model.parameters())) == len(list(model.named_parameters(remove_duplicate=False))) - 1, (
            "the shared embedding alone has two names"
        )


@pytest.mark.parametrize("name", ["post-ln", "deepnorm"])
def test_post_output_is_normalised_whatever_the_input(name):
    torch.manual_seed(0)
    shape = StackShape(kind="encoder", width=64, ffn_width=64, heads=2, encoder_blocks=2)
    stack = Stack(named(name)(shape), StackConfig()).double()
    layout = Layout(torch.tensor([3, 5]))
    output = stack(100 * torch.randn(8, 64, dtype=torch.float64), Context(layout=layout))
    torch.testing.assert_close(output.mean(-1), torch.zeros(8, dtype=torch.float64), rtol=0, atol=1e-12)
    # ε = 1e-5 beside a variance of 1 or more: 1 - 5e-6 at most.
    torch.testing.assert_close(output.std(-1, correction=0), torch.ones(8, dtype=torch.float64), rtol=1e-5, atol=0)
