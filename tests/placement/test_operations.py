"""The operations of formulas, each in every reading, and what parameters may start from."""

import math

import pytest
import torch
from hypothesis import given, strategies as st

from kinds import examples
from normscope.doctor.find.terms import Term, parameter_term
from normscope.model import Context, Layout, Stack, StackConfig
from normscope.model.initialisation import initialise
from normscope.placement import Placement, StackShape, named
from normscope.placement.operations import (
    connect,
    doubly_stochastic,
    joined,
    sigmoid,
    stopped,
    weighed,
)
from normscope.placement.symbol import ParameterSpec, Symbol
from normscope.theory import operations as of_theory  # noqa: F401 (registers what operations do to moments)
from normscope.theory.moments import Atoms, Moments, single
from normscope.theory.operations import InitialNumber, first_values
from stacks import HEADS, WIDTH, small_stack

LOGITS = st.lists(st.floats(-4, 4), min_size=16, max_size=16)


class TestDoublyStochastic:
    @examples(25)
    @given(tokens=st.lists(LOGITS, min_size=1, max_size=3))
    def test_rows_and_columns_sum_to_1(self, tokens):
        numbers = torch.tensor(tokens, dtype=torch.float64).split(1, -1)
        matrix = torch.cat(
            [torch.cat(row, -1).unsqueeze(-2) for row in doubly_stochastic(numbers, rounds=400)], -2
        )
        assert (matrix > 0).all()
        torch.testing.assert_close(
            matrix.sum(-2), torch.ones(len(tokens), 4).double(), rtol=0, atol=1e-12
        )
        torch.testing.assert_close(
            matrix.sum(-1), torch.ones(len(tokens), 4).double(), rtol=0, atol=1e-6
        )

    def test_the_last_half_of_a_round_is_of_columns(self):
        matrix = torch.tensor(
            doubly_stochastic([0.0, 1.0, -2.0, 3.0], rounds=1), dtype=torch.float64
        )
        torch.testing.assert_close(matrix.sum(-2), torch.ones(2).double(), rtol=0, atol=1e-5)
        assert (matrix.sum(-1) - 1).abs().min() > 1e-2

    @examples(25)
    @given(logits=LOGITS)
    def test_constants_are_mixed_as_tensors_are(self, logits):
        ours = torch.tensor(doubly_stochastic(logits), dtype=torch.float64)
        theirs = doubly_stochastic(torch.tensor([logits], dtype=torch.float64).split(1, -1))
        torch.testing.assert_close(
            ours, torch.tensor([[float(x) for x in row] for row in theirs]).double()
        )

    def test_of_equal_logits_is_a_mean(self):
        assert doubly_stochastic([0.0] * 9) == tuple((pytest.approx(1 / 3),) * 3 for _ in range(3))

    @pytest.mark.parametrize(("logits", "rounds"), [([0.0] * 3, 20), ([], 20), ([0.0] * 4, 0)])
    def test_takes_a_square_and_a_round(self, logits, rounds):
        with pytest.raises(ValueError, match="takes n² logits and a round or more"):
            doubly_stochastic(logits, rounds=rounds)


def numbers_of_every_kind():
    """The number 0.6 as every reading has it."""
    return {
        "float": 0.6,
        "tensor": torch.tensor(0.6, dtype=torch.float64),
        "moments": InitialNumber(0.6),
        "term": parameter_term(0.6, ()),
    }


@pytest.mark.parametrize("kind", ["float", "tensor", "moments", "term"])
def test_a_gate_of_variance_1_in_every_reading(kind):
    """α = √(1 - β²), β = σ(gate)."""
    beta = sigmoid(numbers_of_every_kind()[kind])
    alpha = (1 - beta * beta) ** 0.5
    value = alpha.factor.value if isinstance(alpha, Term) else float(alpha)
    assert value == pytest.approx(math.sqrt(1 - (math.e**0.6 / (1 + math.e**0.6)) ** 2), rel=1e-12)


def test_a_gate_prints_as_it_is_written():
    beta = sigmoid(Symbol("gate"))
    assert str((1 - beta * beta) ** 0.5) == "√(1 - σ(gate) · σ(gate))"
    assert str((Symbol("a") + 1) ** 2) == "(a + 1)^2"
    assert str(stopped(Symbol("x", (), 4))) == "stopped(x)"


def test_what_is_stopped_has_a_value_and_no_gradient():
    x = torch.randn(3, 4, requires_grad=True)
    (x + 2 * stopped(x)).sum().backward()
    assert torch.equal(x.grad, torch.ones(3, 4))
    atoms = Atoms(4)
    total = single(atoms, atoms.add(1.0, 0.5)) + stopped(single(atoms, 0)) * 2
    assert total.one == pytest.approx(9.0)
    assert list(total.coefficients) == [3.0]
    assert list(total.gradient_coefficients) == [1.0]


def test_numbers_of_a_token_by_hand():
    x, y = (
        torch.tensor([[3.0, 0.0], [1.0, 1.0]]).double(),
        torch.tensor([[0.0, 4.0], [1.0, 1.0]]).double(),
    )
    weight = torch.tensor([[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 2.0, 0.0], [0.0] * 4]).double()
    bias = torch.tensor([0.0, 0.0, 7.0]).double()
    found = torch.cat(connect(joined(x, y, epsilon=0.0), weight, bias, 0.5), -1)
    # √(25 / 4) = 2.5 and √1.
    torch.testing.assert_close(
        found, torch.tensor([[0.5 * 7 / 2.5, 0.0, 7.0], [1.0, 1.0, 7.0]]).double()
    )


def test_a_weighted_sum_of_the_rows_of_a_parameter():
    rows = ((1.0, 2.0), (3.0, 4.0))
    expected = torch.tensor([14.0, 20.0])
    values = [torch.tensor([2.0, 0.0]), torch.tensor([4.0, 10.0])]
    for entries in (torch.tensor(rows), first_values(rows, (2, 2), 0.0)):
        assert torch.equal(
            weighed((entries[0][0], entries[1][0]), values), expected + torch.tensor([0.0, 10.0])
        )
    parameter = Symbol("m", shape=(2, 2))
    assert str(
        weighed((parameter[0][1], parameter[1][1]), [Symbol("x", (), 2), Symbol("y", (), 2)])
    ) == ("m_12 · x + m_22 · y")
    with pytest.raises(IndexError, match="no entry 2"):
        parameter[2]


class TestFirstValues:
    class Drawn(Placement):
        name, title, citation, year = "drawn", "Drawn", "tests", 2026

        def join(self, x, sublayer, norm):
            gate = sublayer.parameter("gate", initial=3.0, shape=(self.stack.width,), std=0.5)
            pair = sublayer.parameter(
                "pair", initial=(0.25, 0.75), shape=(2,), shared_by_block=True
            )
            return pair[0] * x + pair[1] * (gate * sublayer(x))

    def stack(self) -> Stack:
        return Stack(
            self.Drawn(
                StackShape(kind="encoder", width=400, heads=2, ffn_width=4, encoder_blocks=2)
            ),
            StackConfig(),
        )

    def test_are_drawn_about_the_initial_value_by_the_seed_alone(self):
        stack, again = self.stack(), self.stack()
        for one in (stack, again):
            torch.manual_seed(5)
            initialise(one, "paper", self.Drawn)
        assert all(
            torch.equal(a, b) for a, b in zip(stack.parameters(), again.parameters(), strict=True)
        )
        gates = torch.cat([s.placed["gate"].detach() for s in stack.sublayers()])
        assert float(gates.mean()) == pytest.approx(3.0, abs=4 * 0.5 / 40)
        assert float(gates.std()) == pytest.approx(0.5, rel=0.1)
        assert stack.blocks[0].placed["pair"].tolist() == [0.25, 0.75]

    def test_of_the_matrices_are_as_without_what_is_drawn_beside_them(self):
        """A draw of the formula's own parameters comes after those of a stack's matrices."""
        stack = self.stack()
        torch.manual_seed(5)
        initialise(stack, "paper", self.Drawn)
        post = Stack(named("post-ln")(stack.placement.stack), StackConfig())
        torch.manual_seed(5)
        initialise(post, "paper", named("post-ln"))
        matrices = [p for n, p in post.named_parameters() if ".f." in n]
        assert all(
            map(torch.equal, [p for n, p in stack.named_parameters() if ".f." in n], matrices)
        )

    @pytest.mark.parametrize(
        ("asked", "message"),
        [
            (
                {"initial": (1.0, 2.0), "shape": (3,)},
                r"of shape \(3,\) cannot start from \(1.0, 2.0\)",
            ),
            ({"initial": ((1.0,), (2.0, 3.0)), "shape": (2, 1)}, "cannot start from"),
            ({"initial": 0.0, "shape": (), "std": -1.0}, "must not be negative"),
        ],
    )
    def test_of_another_shape_are_refused(self, asked, message):
        with pytest.raises(ValueError, match=message):
            ParameterSpec(**asked)


def without_connections(stack: Stack) -> Stack:
    """With weights of 0, all numbers of a token are those of its biases."""
    with torch.no_grad():
        for name, parameter in stack.named_parameters():
            if name.endswith("_weight") and ".placed." in name:
                parameter.zero_()
    return stack


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
@pytest.mark.parametrize(
    ("placement", "epsilon"),
    # The final norm of hyper-connections reads the sum of four streams, of which ε is a smaller
    # part.
    [("mhc", 1e-5), ("hyper-connections", 1e-15), ("hyper-connections-static", 1e-15)],
)
def test_without_dynamic_weights_it_is_pre_ln(placement, epsilon, kind):
    shape = StackShape(kind=kind, width=WIDTH, ffn_width=20, heads=HEADS, **{f"{kind}_blocks": 3})
    config = StackConfig(norm_epsilon=epsilon)
    ours, pre_ln = (Stack(named(name)(shape), config).double() for name in (placement, "pre-ln"))
    without_connections(ours)
    pre_ln.load_state_dict({n: p for n, p in ours.state_dict().items() if n in pre_ln.state_dict()})
    x, layout = torch.randn(8, WIDTH).double(), Layout(torch.tensor([5, 3]))
    found, expected = (
        stack(x, Context(layout=layout, causal=kind == "decoder")) for stack in (ours, pre_ln)
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_mhc_mixes_with_doubly_stochastic_matrices_after_its_rounds():
    """As it is drawn and as it is perturbed, from the very logits that the stack computes."""
    stack = small_stack("mhc", "encoder", 1)
    f, x = next(iter(stack.sublayers())), torch.randn(6, WIDTH).double()
    read = joined(x, 2 * x, -x, x.flip(-1))
    numbers = connect(read, *(f.placed[f"C_{part}"] for part in ("weight", "bias", "scale")))
    matrix = torch.stack([torch.cat(row, -1) for row in doubly_stochastic(numbers)], -2)
    for side in (-1, -2):
        torch.testing.assert_close(matrix.sum(side), torch.ones(6, 4).double(), rtol=0, atol=1e-6)


def test_theory_takes_biases_for_numbers_that_hardly_scatter_and_refuses_others():
    atoms = Atoms(256)
    x: Moments = single(atoms, atoms.add(4.0, 1.0))
    weight = InitialNumber(0.0, (2, 1024), 0.02)
    assert connect(joined(x, x, x, x), weight, first_values((0.5, -1.0), (2,), 0.0), 0.01) == (
        0.5,
        -1.0,
    )
    with pytest.raises(
        ValueError,
        match=r"a standard deviation of 0\.64 over 1,024 features: .* cannot be predicted",
    ):
        connect(joined(x, x, x, x), weight, 0.0, 1.0)
    assert connect(joined(x, x, x, x), InitialNumber(0.0, (1, 1024)), 0.0, 1.0) == (0.0,)
    with pytest.raises(ValueError, match="a vector whose entries start from different numbers"):
        x * first_values((0.5, -1.0), (2,), 0.0)
