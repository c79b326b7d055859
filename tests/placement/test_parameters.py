"""The exact parameters that every placement adds to the matrices of F, and their shapes, written out by hand."""

import pytest

from normscope.placement import registered
from stacks import FFN_WIDTH, HEADS, WIDTH, small_model, small_stack

VOCABULARY = 20
MATRICES = {"query": (WIDTH, WIDTH), "key": (WIDTH, WIDTH), "value": (WIDTH, WIDTH), "output": (WIDTH, WIDTH)} | {
    "ffn_in": (FFN_WIDTH, WIDTH),
    "ffn_out": (WIDTH, FFN_WIDTH),
}
Shapes = dict[str, tuple[int, ...]]


def norms(*places: str, width: int = WIDTH) -> Shapes:
    """LayerNorms of that width: `attention.main` in the first block, `finish.main` at an end."""
    found: Shapes = {}
    for part, name in (place.split(".", 1) for place in places):
        at = f"{part}.norm.{name}" if part in ("start", "finish") else f"blocks.0.{part}.norm.{name}"
        found |= {f"{at}.weight": (width,), f"{at}.bias": (width,)}
    return found


def number(place: str, *shape: int) -> Shapes:
    """A placement's own parameter, of a sub-layer or an end."""
    part, name = place.split(".")
    return {f"{'' if part == 'finish' else 'blocks.0.'}{part}.placed.{name}": shape}


POST = norms("attention.main", "feed_forward.main")
PRE = POST | norms("finish.main")
ADMIN = POST | number("attention.skip_scale", WIDTH) | number("feed_forward.skip_scale", WIDTH)
SANDWICH = norms("attention.before", "attention.after", "feed_forward.before", "feed_forward.after", "finish.main")
SUB_LN = PRE | norms("attention.inner") | norms("feed_forward.inner", width=FFN_WIDTH)
HYBRID = norms("attention.main", "finish.main")
BY_HEAD = norms("attention.query.each", "attention.key.each", "attention.value.each", width=WIDTH // HEADS)
ATTENTION_RESIDUALS = (
    PRE
    | norms("attention.key", "feed_forward.key", "finish.key")
    | number("attention.query", WIDTH)
    | number("feed_forward.query", WIDTH)
    | number("finish.query", WIDTH)
)
# Its own norm, on the sphere, has no parameters: these are all.
NGPT = (
    number("attention.step", WIDTH)
    | number("attention.s_qk", WIDTH)
    | number("feed_forward.step", WIDTH)
    | number("feed_forward.s_u", FFN_WIDTH)
)
NGPT_NORMS = norms("start.main", "attention.main", "attention.branch", "feed_forward.main", "feed_forward.branch")
NGPT_HEADS = norms("attention.query.each", "attention.key.each", width=WIDTH // HEADS)

ADDED: dict[str, Shapes] = {
    "admin": ADMIN,
    "admin-clinic": ADMIN,
    "admin-constant": POST,
    "admin-log-n": POST,
    "attn-res": ATTENTION_RESIDUALS,
    "attn-res-block": ATTENTION_RESIDUALS,
    "b2t": POST,
    "b2t-rescaled": POST,
    "branch-norm": POST,
    "deepnorm": POST,
    "ds-init": POST,
    "ds-init-code": POST,
    "gpt2": PRE,
    "hybrid-norm": HYBRID | BY_HEAD,
    "hybrid-norm-star": HYBRID | BY_HEAD | norms("feed_forward.main"),
    "hybrid-norm-width": HYBRID | norms("attention.query", "attention.key", "attention.value"),
    "keel": norms("attention.inner", "attention.outer", "feed_forward.inner", "feed_forward.outer"),
    "keel-pre-first": norms("attention.inner", "feed_forward.inner"),
    "lns": PRE,
    "mix-ln": PRE,
    "ngpt": NGPT | NGPT_NORMS | NGPT_HEADS,
    "olmo-2": PRE | norms("attention.query", "attention.key"),
    "peri-ln": SANDWICH | norms("start.main"),
    "post-ln": POST,
    "pre-ln": PRE,
    "pre-to-post": norms("attention.pre", "attention.post", "feed_forward.pre", "feed_forward.post", "finish.main"),
    "reordered": PRE,
    "residual": PRE,
    "rezero": {"blocks.0.placed.gate": ()},
    "sandwich": SANDWICH,
    "scale-norm": PRE,
    "sub-ln": SUB_LN,
    "sub-ln-cross": SUB_LN,
    "t-fixup": {},
}
"""In an encoder of one block, read with LayerNorm."""

PLAIN_CROSS = norms("cross_attention.main")
ITS_OWN_CROSS = {"sub-ln": PLAIN_CROSS}
"""What cross-attention adds where that is not what self-attention does."""


def beside_the_matrices(module) -> Shapes:
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters(remove_duplicate=False)}
    return {name: shape for name, shape in shapes.items() if ".f." not in name and "_embedding." not in name}


def model_of_one_block(name: str, norm: str = "layer-norm"):
    return small_model(name, norm, encoder_blocks=1, decoder_blocks=1)


def test_every_placement_stands_here():
    assert list(ADDED) == list(registered())


@pytest.mark.parametrize("name", ADDED)
def test_exactly_the_parameters_that_the_formula_asks_for(name):
    of_attention = {n: s for n, s in ADDED[name].items() if ".attention." in n}
    cross = ITS_OWN_CROSS.get(name, {n.replace(".attention.", ".cross_attention."): s for n, s in of_attention.items()})
    head = {"head.placed.s_z": (VOCABULARY, 1)} if name == "ngpt" else {}
    assert beside_the_matrices(model_of_one_block(name)) == (
        {f"encoder.{n}": s for n, s in ADDED[name].items()}
        | {f"decoder.{n}": s for n, s in (ADDED[name] | cross).items()}
        | head
    )


def test_scale_norm_has_one_number_a_norm():
    names = {n for n in PRE | PLAIN_CROSS if n.endswith("weight")}
    expected = {f"decoder.{n}": () for n in names} | {f"encoder.{n}": () for n in names if "cross" not in n}
    assert beside_the_matrices(model_of_one_block("scale-norm", "as-placement")) == expected


def test_ngpt_on_its_sphere_has_steps_and_scales_alone():
    expected = {f"{stack}.{n}": s for stack in ("encoder", "decoder") for n, s in NGPT.items()}
    expected |= {f"decoder.blocks.0.cross_attention.placed.{n}": (WIDTH,) for n in ("step", "s_qk")}
    expected |= {"head.placed.s_z": (VOCABULARY, 1)}
    assert beside_the_matrices(model_of_one_block("ngpt", "as-placement")) == expected


@pytest.mark.parametrize("name", registered())
def test_the_matrices_of_f_are_everyones(name):
    model = model_of_one_block(name)
    found = {n: tuple(p.shape) for n, p in model.named_parameters() if ".f." in n}
    attention = [m for m in MATRICES if not m.startswith("ffn")]
    places = [(s, k) for s in ("encoder", "decoder") for k in ("attention", "cross_attention", "feed_forward")]
    expected: Shapes = {}
    for stack, kind in places[:1] + places[2:]:
        for matrix in ("ffn_in", "ffn_out") if kind == "feed_forward" else attention:
            at = f"{stack}.blocks.0.{kind}.f.{matrix}"
            expected |= {f"{at}.weight": MATRICES[matrix], f"{at}.bias": MATRICES[matrix][:1]}
    assert found == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # The second block, beside the first in the table.
        ("keel-pre-first", norms("attention.inner", "attention.outer", "feed_forward.inner", "feed_forward.outer")),
        ("hybrid-norm-star", norms("attention.main") | BY_HEAD),
        ("rezero", {"blocks.0.placed.gate": ()}),
    ],
)
def test_where_the_second_block_differs_from_the_first(name, expected):
    found = beside_the_matrices(small_stack(name, "encoder", blocks=2))
    second = {n.replace("blocks.1", "blocks.0"): s for n, s in found.items() if "blocks.1" in n}
    assert second == expected


@pytest.mark.parametrize(
    "name", [name for name, placement in registered().items() if "encoder-only" in placement.models]
)
def test_a_stack_alone_has_the_same(name):
    for kind in ("encoder", "decoder"):
        assert beside_the_matrices(small_stack(name, kind, blocks=1)) == ADDED[name]
