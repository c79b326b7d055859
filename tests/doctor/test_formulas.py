"""Formulas as values: what rules ask of them, and their outlines, which are what remains without
numbers.
"""

from collections.abc import Callable

import pytest

from normscope.doctor.find.branches import InnerPlace
from normscope.doctor.find.formulas import Formula
from normscope.doctor.find.segments import Segment, scales
from normscope.doctor.find.terms import Term, normed, scaled
from normscope.doctor.identify.matching import outline
from normscope.doctor.trace.graph import Factor
from normscope.doctor.trace.operations import Origin

GATE, SCHEDULED = Factor(0.1, Origin.TRAINABLE), Factor(0.5, Origin.BUFFER)
QK = (InnerPlace("score", by_head=True),)
F = Callable[[Term], Term]


def formula(
    join: Callable[[Term, F], Term], kind: str = "attention", inside: tuple[InnerPlace, ...] = ()
) -> Formula:
    """One sub-layer joined to x."""
    made: list[Term] = []

    def f(read: Term) -> Term:
        made.append(Term("branch", (read,), branch=0, inside=inside, text=kind))
        return made[-1]

    x = Term("source", text="x")
    return Formula(Segment(x, join(x, f), tuple(made)), made[0])


def post(x: Term, f: F) -> Term:
    return normed(x + f(x))


def pre(x: Term, f: F) -> Term:
    return x + f(normed(x))


def shared(x: Term, f: F) -> Term:
    x = normed(x)
    return x + f(x)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x, f: normed(x * 2 + f(x)), lambda x, f: normed(f(x) + 2 * x)),
        (lambda x, f: normed(x * 2 + f(x)), lambda x, f: normed(x + 0.5 * f(x))),
        (lambda x, f: x + f(0.5 * normed(3 * x)), lambda x, f: f(0.5 * normed(x)) + x),
        (lambda x, f: x - f(normed(x)), lambda x, f: -1 * f(normed(x)) + x),
        (lambda x, f: x + 2 * (3 * f(x)), lambda x, f: x + 6 * f(x)),
    ],
)
def test_one_formula_written_in_two_ways_has_one_outline(one, other):
    assert outline(formula(one).segment) is not None
    assert outline(formula(one).segment) == outline(formula(other, kind="feed_forward").segment)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pre, post),
        (pre, lambda x, f: x + normed(f(x))),
        (pre, lambda x, f: x + scaled(f(normed(x)), GATE)),
        (lambda x, f: x + scaled(f(x), GATE), lambda x, f: x + scaled(f(x), SCHEDULED)),
    ],
)
def test_other_formulas_have_other_outlines(one, other):
    assert outline(formula(one).segment).structure != outline(formula(other).segment).structure


def test_a_number_keeps_its_place_whatever_it_is():
    plain, scaled_down = (
        outline(formula(lambda x, f, n=n: x + f(normed(x) * n)).segment) for n in (1.0, 0.25)
    )
    assert plain.structure == scaled_down.structure
    different = [
        pair for pair in zip(plain.numbers, scaled_down.numbers, strict=True) if pair[0] != pair[1]
    ]
    assert different == [(1.0, 0.25)]
    assert outline(formula(pre, inside=QK).segment).structure != plain.structure


def test_what_is_used_twice_or_taken_over_depth_has_no_outline():
    assert str(formula(shared)) == "a1 = norm(x); x ← a1 + attention(a1)"
    assert outline(formula(shared).segment) is None
    assert outline(formula(lambda x, f: x + f(Term("mix", (x,)))).segment) is None


@pytest.mark.parametrize(
    ("join", "text", "sum_is_normed", "reads_norm"),
    [
        (post, "x ← norm(x + attention(x))", True, False),
        (pre, "x ← x + attention(norm(x))", False, True),
        (lambda x, f: x + normed(f(x)), "x ← x + norm(attention(x))", False, False),
        (
            lambda x, f: normed(x * 2 + f(normed(x))),
            "x ← norm(2 · x + attention(norm(x)))",
            True,
            True,
        ),
        (lambda x, f: normed(2 * (x + f(x))), "x ← norm(2 · (x + attention(x)))", True, False),
        (lambda x, f: normed(x) + f(x), "x ← norm(x) + attention(x)", False, False),
        (lambda x, f: x + f(0.5 * normed(x)), "x ← x + attention(0.5 · norm(x))", False, False),
    ],
)
def test_where_norms_stand(join, text, sum_is_normed, reads_norm):
    asked = formula(join)
    assert (str(asked), asked.sum_is_normed, asked.reads_norm) == (text, sum_is_normed, reads_norm)
    # Norms of queries and keys change none of it.
    asked = formula(join, inside=QK)
    assert "norm(score by head)" in str(asked)
    assert (asked.sum_is_normed, asked.reads_norm) == (sum_is_normed, reads_norm)


@pytest.mark.parametrize(
    ("join", "gate"),
    [
        (pre, Factor(1.0)),
        (lambda x, f: x + scaled(f(normed(x)), GATE), GATE),
        (lambda x, f: x + scaled(f(x), SCHEDULED) * 2, Factor(1.0, Origin.BUFFER)),
        # A trained factor of the skip is no gate of the branch.
        (lambda x, f: scaled(x, GATE) + f(x), Factor(1.0)),
        (lambda x, f: f(x), None),
    ],
)
def test_the_gate_is_what_multiplies_the_branch(join, gate):
    assert formula(join).gate == gate


def test_outlined_formulas_say_f_and_keep_numbers_where_asked():
    heavy = formula(lambda x, f: normed(x * 2.5 - f(normed(x) * 0.5)))
    assert str(heavy.outlined(numbers=True)) == "x ← norm(2.5 · x - F(0.5 · norm(x)))"
    assert str(heavy.outlined(numbers=False)) == "x ← norm(x - F(norm(x)))"
    gated = formula(lambda x, f: x + scaled(f(x), GATE))
    assert str(gated.outlined(numbers=False)) == "x ← x + trained · F(x)"
    assert str(gated) == "x ← x + trained · attention(x)"


def test_formulas_are_equal_where_they_are_written_alike():
    assert formula(pre) == formula(pre)
    assert len({formula(pre), formula(pre), formula(post)}) == 2
    assert formula(pre) != str(formula(pre))


def test_scales_of_a_sum_that_is_added_up_on_very_many_ways():
    def doubled(x: Term, f: F) -> Term:
        total = x + 3 * f(normed(x))
        for _ in range(40):
            total = total + total
        return total

    many = formula(doubled)
    assert scales(many.segment, many.branch) == (2.0**40, 3.0)
    few = formula(lambda x, f: 2 * (x * 0.5 + f(x)) + x)
    assert scales(few.segment, few.branch) == (2.0, 2.0)
