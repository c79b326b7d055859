"""Moments beside vectors: the same operations on arrays whose parts are orthogonal, so that both
agree exactly.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import example, given, strategies as st
from torch import Tensor, nn

import normscope.model  # noqa: F401  registers attention over depth and unit vectors for tensors
from normscope.placement.operations import mix, unit
from normscope.theory.lanes import Lane
from normscope.theory.moments import Atoms, Moments, Unpredictable, single
from normscope.theory.operations import InitialNumber, MomentNorms, without_mean
from normscope.theory.places import causal
from normscope.theory.predict import ModelSetting, predict

TOKENS, PARTS = 3, 5
WIDTH = 24
"""One direction of equal features, TOKENS + 1 directions for each part, and three that stay
empty.
"""
EPSILON = 1e-5

Both = tuple[Moments, Tensor]


def parts(seed: int = 0, constant: bool = True) -> list[Both]:
    """Parts with a share that all tokens have in common, and at last one that is the same in every
    feature.
    """
    generator = np.random.default_rng(seed)
    basis = np.linalg.qr(np.c_[np.ones(WIDTH), generator.normal(size=(WIDTH, WIDTH - 1))])[0].T
    atoms, found = Atoms(WIDTH), []
    for part in range(PARTS):
        shared, *own = basis[1 + part * (TOKENS + 1) :][: TOKENS + 1]
        in_common, alone = generator.normal(size=2) * math.sqrt(WIDTH)
        array = in_common * shared + alone * np.array(own)
        index = atoms.add((in_common**2 + alone**2) / WIDTH, in_common**2 / WIDTH)
        found.append((single(atoms, index), torch.from_numpy(array)))
    if constant:
        found.append(
            (
                0.7 * single(atoms, atoms.one()),
                torch.full((TOKENS, WIDTH), 0.7, dtype=torch.float64),
            )
        )
    return found


def assert_same(pair: Both) -> None:
    moments, x = pair
    products = x @ x.T / WIDTH
    assert moments.one == pytest.approx(float(products.trace()) / TOKENS, rel=1e-10, abs=1e-12)
    assert moments.two == pytest.approx(
        float(products.triu(1).sum()) / TOKENS / (TOKENS - 1) * 2, rel=1e-10, abs=1e-12
    )
    again = Moments.of(moments.atoms, moments.coefficients)
    assert (again.one, again.two) == pytest.approx(
        (moments.one, moments.two), rel=1e-12, abs=1e-12
    ), "from the coefficients"


def norm_of(kind: str, pair: Both) -> Both:
    moments, x = pair
    if kind == "layer":
        return MomentNorms(EPSILON, centres=True)(moments), nn.functional.layer_norm(
            x, (WIDTH,), eps=EPSILON
        )
    return MomentNorms(EPSILON, centres=False)(moments), nn.functional.rms_norm(
        x, (WIDTH,), eps=EPSILON
    )


def mixed(values: list[Both]) -> Both:
    query, keys = torch.zeros(WIDTH).double(), nn.RMSNorm(WIDTH).double()
    moments = mix(
        InitialNumber(0.0), [m for m, _ in values], MomentNorms(EPSILON, centres=True).key
    )
    return moments, mix(query, [x for _, x in values], keys).detach()


INDEX = st.integers(0, 100)
FACTOR = st.floats(-3, 3).filter(lambda factor: abs(factor) > 1e-3)
STEP = st.one_of(
    st.tuples(st.sampled_from(["add", "subtract"]), INDEX, INDEX),
    st.tuples(
        st.sampled_from(["times", "times from the left", "divided", "shifted"]), INDEX, FACTOR
    ),
    st.tuples(st.sampled_from(["layer", "rms", "unit"]), INDEX, st.none()),
    st.tuples(st.just("mix"), INDEX, st.integers(1, 6)),
)


def taken(step: tuple, known: list[Both]) -> Both:
    name, index, argument = step
    moments, x = known[index % len(known)]
    if name in ("add", "subtract"):
        other, y = known[argument % len(known)]
        return (moments + other, x + y) if name == "add" else (moments - other, x - y)
    if name == "times":
        return moments * argument, x * argument
    if name == "times from the left":
        return argument * moments, argument * x
    if name == "shifted":
        return moments + argument, x + argument
    if name == "divided":
        return moments / argument, x / argument
    if name == "unit":
        # There is no direction in what cancelled but for rounding.
        return (unit(moments), unit(x)) if moments.one > 1e-12 else (moments, x)
    if name == "mix":
        return mixed([known[(index + i) % len(known)] for i in range(argument)])
    return norm_of(name, (moments, x))


class TestOperations:
    @given(seed=st.integers(0, 99), steps=st.lists(STEP, max_size=12))
    @example(seed=0, steps=[("add", 0, 0), ("subtract", 0, 6), ("add", 1, 7)])
    @example(
        seed=0,
        steps=[("add", 0, 5), ("add", 3, 6), ("subtract", 6, 0), ("layer", 7, None), ("add", 7, 9)],
    )
    def test_as_on_vectors(self, seed, steps):
        known = parts(seed)
        for step in steps:
            known.append(taken(step, known))
        # All of them, the operands too: none of the operations may change what it is given.
        for pair in known:
            assert_same(pair)

    def test_a_part_in_common_counts_by_its_sum(self):
        (a, _), (b, _), *_ = parts()
        assert (a + a).one == pytest.approx(4 * a.one, rel=1e-15)
        assert (a - a).one == 0
        assert ((a + b) - b).one == pytest.approx(a.one, rel=1e-15)
        assert (a + b).one == pytest.approx(a.one + b.one, rel=1e-15)

    def test_a_value_made_before_many_parts(self):
        atoms = Atoms(WIDTH)
        values = [single(atoms, atoms.add(1.0 + i, 0.5 * i)) for i in range(200)]
        assert list(atoms.squares) == [1.0 + i for i in range(200)]
        assert [atoms.products(i).two for i in range(200)] == [0.5 * i for i in range(200)]
        for total in (values[0] + values[199], values[199] + values[0]):
            assert (total.one, total.two) == (1 + 200, 0.5 * 199)
        assert (values[0] - values[199]).coefficients[199] == -1

    def test_a_lane_that_leaves_the_range_of_floats_is_made_anew(self):
        """A stream that every norm halves, 1,200 of them: its first coefficient is 2^-1200 of what
        was added last.
        """
        atoms = Atoms(WIDTH)
        x = single(atoms, atoms.add(1.0, 0.0))
        for _ in range(1200):
            x = 0.5 * x + single(atoms, atoms.add(0.75, 0.0))
        assert x.one == pytest.approx(1.0, rel=1e-12)
        assert x.coefficients[-2:] == pytest.approx([0.5, 1.0], rel=1e-12)
        assert float(x.coefficients**2 @ atoms.squares) == pytest.approx(1.0, rel=1e-12)

    def test_values_of_one_lane_stay_apart(self):
        """Sums append to a list of coefficients that values share; what is added to one is not in
        another.
        """
        atoms = Atoms(WIDTH)
        a, b, c = (single(atoms, atoms.add(1.0 + i, 0.1)) for i in range(3))
        base = a + 2 * b
        one, other = base + c, 3 * base + c
        assert list(base.coefficients) == [1, 2]
        assert list(one.coefficients) == [1, 2, 1]
        assert list(other.coefficients) == [3, 6, 1]
        assert (other - one).one == pytest.approx(4 * base.one, rel=1e-12)

    def test_streams_that_stay_alike_share_their_coefficients(self):
        """What one stream has appended the others find, and so a stack of such streams costs what
        one stream costs.
        """
        atoms = Atoms(WIDTH)
        x, b, c = (single(atoms, atoms.add(1.0 + i, 0.1)) for i in range(3))
        x = x + 2 * b
        one, other, another = x + c, (0.25 * x + 0.75 * x) + c, x + 2 * c
        assert one.lane is other.lane is x.lane
        assert another.lane is not one.lane
        assert list(other.coefficients) == [1, 2, 1]
        assert list(another.coefficients) == [1, 2, 2]
        assert ((0.25 * x - 0.75 * x).one, (x - x).one) == (
            pytest.approx(0.25 * x.one, rel=1e-12),
            0,
        )

    @pytest.mark.parametrize("name", ["mhc", "hyper-connections", "attn-res", "denseformer"])
    @pytest.mark.parametrize("kind", ["encoder", "decoder"])
    def test_what_is_copied_does_not_grow_with_the_square_of_the_depth(
        self, name, kind, monkeypatch
    ):
        copied = []
        made = Lane.__init__
        monkeypatch.setattr(
            Lane,
            "__init__",
            lambda lane, *parts: (copied.append(len(parts[0])), made(lane, *parts))[1],
        )
        predict(name, ModelSetting(stack=kind, blocks=24, width=32, ffn_width=32, tokens=3))
        assert sum(copied) < 4 * 2 * 24

    def test_of_places_beside_explicit_sums(self):
        generator = np.random.default_rng(0)
        places, atoms = causal(4), Atoms(WIDTH, places=causal(4))
        grams = [part @ part.T for part in generator.normal(size=(20, 4, 4))]
        for gram in grams:
            atoms.add(np.diag(gram), gram, gram / 3)
        for shape in ((20,), (20, 4)):
            by_place = np.broadcast_to((coefficients := generator.normal(size=shape)).T, (4, 20)).T
            value = Moments.of(atoms, coefficients)
            expected = sum(np.outer(c, c) * gram for c, gram in zip(by_place, grams, strict=True))
            np.testing.assert_allclose(value.two, expected, rtol=1e-12)
            np.testing.assert_allclose(value.one, np.diag(expected), rtol=1e-12)
            np.testing.assert_allclose(value.apart, expected / 3, rtol=1e-12)
            assert value.coefficients.shape == (20, places.count)
            halved = value.times(np.array([1.0, 0.5, 2.0, 1.0]), 1.0, normed=False)
            total = halved + single(atoms, 3)
            np.testing.assert_allclose(
                total.one, Moments.of(atoms, total.coefficients).one, rtol=1e-12
            )


class TestSpread:
    """d · Var(‖x‖² / d), which says how far a norm's divisor scatters, beside random vectors."""

    def test_of_sums(self):
        width, draws = 64, 4000
        generator = torch.Generator().manual_seed(0)
        atoms = Atoms(width)
        values = [single(atoms, atoms.add(q, 0.0)) for q in (1.0, 0.5, 2.0)]
        x = [
            q**0.5 * torch.randn(draws, width, generator=generator).double()
            for q in (1.0, 0.5, 2.0)
        ]
        norms = MomentNorms(0.0, centres=False)
        normed = nn.functional.rms_norm(x[0], (width,))
        for found, drawn in (
            (values[0], x[0]),
            (0.7 * values[0] + values[1], 0.7 * x[0] + x[1]),
            (values[0] + values[1] - values[2], x[0] + x[1] - x[2]),
            ((values[0] + values[1]) + values[0], 2 * x[0] + x[1]),
            (norms(values[0]) + values[1], normed + x[1]),
            (norms(values[0]), normed),
        ):
            squares = drawn.square().sum(1) / width
            assert found.spread == pytest.approx(width * float(squares.var()), rel=0.12, abs=1e-9)

    def test_depth_is_mixed_evenly_over_parts_and_sums(self):
        known = parts()
        known.append((known[0][0] + known[2][0], known[0][1] + known[2][1]))
        assert_same(mixed(known))
        assert_same(mixed([known[0], known[0], known[6]]))

    @pytest.mark.parametrize("query", [1e-9, -1.0])
    def test_no_other_query_over_depth(self, query):
        (a, _), *_ = parts()
        with pytest.raises(
            ValueError, match=f"predicted for a query of 0, where it starts, got {query}"
        ):
            mix(InitialNumber(query), [a], MomentNorms(EPSILON, centres=True))


class TestNorms:
    def test_layer_norm_takes_the_mean_over_features_off(self):
        known = parts()
        (a, _), (constant, _) = known[0], known[-1]
        x = a + 3 * constant
        assert without_mean(x).one == pytest.approx(a.one, rel=1e-15)
        assert without_mean(a) is a
        assert MomentNorms(EPSILON, centres=True)(x).one == pytest.approx(
            a.one / (a.one + EPSILON), rel=1e-12
        )
        with_mean = MomentNorms(EPSILON, centres=False)(x)
        assert with_mean.one == pytest.approx(x.one / (x.one + EPSILON), rel=1e-12)
        assert with_mean.coefficients[PARTS] == pytest.approx(
            0.7 * 3 / math.sqrt(x.one + EPSILON), rel=1e-12
        )

    @pytest.mark.parametrize("centres", [True, False])
    def test_all_names_give_the_same(self, centres):
        (a, _), *_ = parts()
        norm = MomentNorms(EPSILON, centres=centres)
        assert norm.query(a, groups=4).one == norm.anything(a).one == norm(a).one

    def test_what_python_asks_for_is_no_norm(self):
        with pytest.raises(AttributeError):
            _ = MomentNorms(EPSILON, centres=True).__deepcopy__

    def test_a_value_below_epsilon_is_not_brought_to_1(self):
        atoms = Atoms(WIDTH)
        tiny = single(atoms, atoms.add(1e-7, 0.0))
        assert MomentNorms(EPSILON, centres=True)(tiny).one == pytest.approx(
            1e-7 / (1e-7 + EPSILON), rel=1e-12
        )
        nothing = single(atoms, atoms.add(0.0, 0.0))
        assert MomentNorms(EPSILON, centres=True)(nothing).one == 0

    def test_width_makes_the_moments_of_normal_vectors_exact(self):
        """q and p of a norm's output, from normal vectors instead of orthogonal ones: O(1/d)
        away.
        """
        width, draws, tokens = 512, 40, 4
        generator = torch.Generator().manual_seed(3)
        shared, own = (
            torch.randn(draws, n, width, generator=generator).double() for n in (1, tokens)
        )
        normed = nn.functional.layer_norm(1.5 + 0.6 * shared + 1.2 * own, (width,), eps=EPSILON)
        products = (normed @ normed.mT).mean(0) / width
        atoms = Atoms(width)
        indices = [
            atoms.add(0.36, 0.36),
            atoms.add(1.44, 0.0),
            atoms.add(2.25, 2.25, centred=False),
        ]
        x = MomentNorms(EPSILON, centres=True)(
            sum((single(atoms, i) for i in indices[1:]), single(atoms, indices[0]))
        )
        assert x.one == pytest.approx(float(products.trace()) / tokens, abs=1e-4)
        # The spread of one product is 1/√d, of the mean over draws and pairs a sixteenth of it.
        off_diagonal = float(products.sum() - products.trace()) / tokens / (tokens - 1)
        assert x.two == pytest.approx(off_diagonal, abs=4 / math.sqrt(width * draws * tokens))
        assert x.two == pytest.approx(0.2, rel=1e-4)


def test_numbers_may_stand_on_either_side() -> None:
    """As they may beside tensors and symbols: a formula is written in any order."""
    moments, x = parts()[0]
    for ours, theirs in (
        (0.5 + moments, 0.5 + x),
        (moments - 0.5, x - 0.5),
        (0.5 - moments, 0.5 - x),
        (0 + moments * 2, 0 + x * 2),
    ):
        assert_same((ours, theirs))


@pytest.mark.parametrize(
    "formula",
    [lambda x: x**2, lambda x: x / x, lambda x: 1 / x, lambda x: x * x],
)
def test_what_theory_does_not_follow_is_refused_in_words(
    formula: Callable[[Moments], Moments],
) -> None:
    with pytest.raises(Unpredictable, match="this placement cannot be predicted"):
        formula(parts()[0][0])
