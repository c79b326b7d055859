"""The exact parameters that every placement adds to the matrices of F, and their shapes, as
`expected` has them.
"""

import pytest

from normscope.placement import registered
from placement.expectations import PRE, Shapes, norms
from placement.expected import expected
from placement.expected.inside_the_branch import BY_HEAD
from placement.expected.without_layer_norm import NUMBERS
from stacks import FFN_WIDTH, WIDTH, small_model, small_stack

MATRICES = {
    "query": (WIDTH, WIDTH),
    "key": (WIDTH, WIDTH),
    "value": (WIDTH, WIDTH),
    "output": (WIDTH, WIDTH),
} | {
    "ffn_in": (FFN_WIDTH, WIDTH),
    "ffn_out": (WIDTH, FFN_WIDTH),
}


def beside_the_matrices(module) -> Shapes:
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters(remove_duplicate=False)}
    return {
        name: shape
        for name, shape in shapes.items()
        if ".f." not in name and "_embedding." not in name
    }


def model_of_one_block(name: str, norm: str = "layer-norm"):
    return small_model(name, norm, encoder_blocks=1, decoder_blocks=1)


def in_a_decoder(added: Shapes, cross: Shapes | None = None) -> Shapes:
    """What a placement adds there too; `cross`: where cross-attention is not as self-attention."""
    of_attention = {n: s for n, s in added.items() if ".attention." in n}
    as_attention = {
        n.replace(".attention.", ".cross_attention."): s for n, s in of_attention.items()
    }
    return added | (as_attention if cross is None else cross)


@pytest.mark.parametrize("name", registered())
def test_exactly_the_parameters_that_the_formula_asks_for(name):
    known = expected(name)
    assert beside_the_matrices(model_of_one_block(name)) == (
        {f"encoder.{n}": s for n, s in known.added.items()}
        | {f"decoder.{n}": s for n, s in in_a_decoder(known.added, known.cross).items()}
        | known.head
    )


def test_scale_norm_has_one_number_a_norm():
    names = {n for n in in_a_decoder(PRE) if n.endswith("weight")}
    numbers = {f"decoder.{n}": () for n in names} | {
        f"encoder.{n}": () for n in names if "cross" not in n
    }
    assert beside_the_matrices(model_of_one_block("scale-norm", "as-placement")) == numbers


def test_ngpt_on_its_sphere_has_steps_and_scales_alone():
    numbers = {f"{stack}.{n}": s for stack in ("encoder", "decoder") for n, s in NUMBERS.items()}
    numbers |= {f"decoder.blocks.0.cross_attention.placed.{n}": (WIDTH,) for n in ("step", "s_qk")}
    numbers |= expected("ngpt").head
    assert beside_the_matrices(model_of_one_block("ngpt", "as-placement")) == numbers


@pytest.mark.parametrize("name", registered())
def test_the_matrices_of_f_are_everyones(name):
    model = model_of_one_block(name)
    found = {n: tuple(p.shape) for n, p in model.named_parameters() if ".f." in n}
    attention = [m for m in MATRICES if not m.startswith("ffn")]
    places = [
        (s, k)
        for s in ("encoder", "decoder")
        for k in ("attention", "cross_attention", "feed_forward")
    ]
    shapes: Shapes = {}
    for stack, kind in places[:1] + places[2:]:
        for matrix in ("ffn_in", "ffn_out") if kind == "feed_forward" else attention:
            at = f"{stack}.blocks.0.{kind}.f.{matrix}"
            shapes |= {f"{at}.weight": MATRICES[matrix], f"{at}.bias": MATRICES[matrix][:1]}
    assert found == shapes


@pytest.mark.parametrize(
    ("name", "added"),
    [
        # The second block, beside the first in the table.
        (
            "keel-pre-first",
            norms("attention.inner", "attention.outer", "feed_forward.inner", "feed_forward.outer"),
        ),
        ("hybrid-norm-star", norms("attention.main") | BY_HEAD),
        ("rezero", {"blocks.0.placed.gate": ()}),
    ],
)
def test_where_the_second_block_differs_from_the_first(name, added):
    found = beside_the_matrices(small_stack(name, "encoder", blocks=2))
    second = {n.replace("blocks.1", "blocks.0"): s for n, s in found.items() if "blocks.1" in n}
    assert second == added


@pytest.mark.parametrize(
    "name", [name for name, placement in registered().items() if "encoder-only" in placement.models]
)
def test_a_stack_alone_has_the_same(name):
    for kind in ("encoder", "decoder"):
        assert beside_the_matrices(small_stack(name, kind, blocks=1)) == expected(name).added
