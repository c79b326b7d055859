"""Constants of depth, against the numbers their papers, codes and papers' readers print."""

import math
from itertools import pairwise
from types import SimpleNamespace

import pytest

from normscope.placement import Placement, Site, StackShape, named

BOTH = [("encoder", 6, 6), ("decoder", 6, 6)]


def placed(name: str, kind: str, encoder_blocks: int, decoder_blocks: int) -> Placement:
    shape = StackShape(
        kind=kind, width=8, encoder_blocks=encoder_blocks, decoder_blocks=decoder_blocks
    )
    return named(name)(shape)


def gains(placement: Placement, block: int = 1) -> dict[str, float]:
    """The gain of every matrix of one block: `cross_attention.value` and so on."""
    matrices = {"feed_forward": ("ffn_in", "ffn_out")}
    return {
        f"{kind}.{matrix}": placement.gain(
            matrix, Site(kind=kind, block=block, stack=placement.stack)
        )
        for kind in placement.stack.kinds
        for matrix in matrices.get(kind, ("query", "key", "value", "output"))
    }


def only(found: dict[str, float]) -> float:
    """The one value that all of them have."""
    (value,) = set(found.values())
    return value


def differing(found: dict[str, float]) -> dict[str, float]:
    return {name: gain for name, gain in found.items() if gain != 1}


@pytest.mark.parametrize(
    ("encoder_blocks", "decoder_blocks", "kind", "skip_scale", "branch_gain"),
    [
        (6, 6, "encoder", 1.418, 0.497),  # Wang et al. 2022, and three implementations of it
        (6, 6, "decoder", 2.060, 0.343),
        (12, 0, "encoder", 2.213, 0.319),  # 24^1/4, 96^-1/4
        (0, 32, "decoder", 2.828, 0.250),  # 64^1/4, 256^-1/4
        (18, 18, "encoder", 1.999, 0.353),  # 0.81 (18^5)^1/16, 0.87 (18^5)^-1/16
        (8, 1, "decoder", 1.316, 0.537),  # 3^1/4, 12^-1/4
    ],
)
def test_deepnorm(encoder_blocks, decoder_blocks, kind, skip_scale, branch_gain):
    placement = placed("deepnorm", kind, encoder_blocks, decoder_blocks)
    assert placement.skip_scale == pytest.approx(skip_scale, abs=5e-4)
    assert placement.branch_gain == pytest.approx(branch_gain, abs=5e-4)
    # Within one stack alone the two constants are tied: their product is (2/8)^1/4 = 2^-1/2
    # whatever the depth.
    if not (encoder_blocks and decoder_blocks):
        assert placement.skip_scale * placement.branch_gain == pytest.approx(0.5**0.5, rel=1e-14)


def test_deepnorm_leaves_queries_and_keys_at_gain_1():
    placement = placed("deepnorm", "encoder", 6, 0)
    drawn_at_it = (
        "attention.value",
        "attention.output",
        "feed_forward.ffn_in",
        "feed_forward.ffn_out",
    )
    assert differing(gains(placement)) == dict.fromkeys(drawn_at_it, placement.branch_gain)


@pytest.mark.parametrize(
    ("kind", "encoder_blocks", "decoder_blocks", "gamma"),
    [
        ("encoder", 6, 6, 1.547),
        ("decoder", 6, 6, 1.700),
        ("encoder", 6, 0, 1.576),
        ("decoder", 0, 6, 1.576),
        ("decoder", 0, 24, 1.968),  # √ln 48
        ("encoder", 12, 3, 1.526),  # √(ln 9 ln 24 / 3)
        ("decoder", 12, 3, 1.482),  # √ln 9
    ],
)
def test_sub_ln_leaves_queries_keys_and_cross_attention_alone(
    kind, encoder_blocks, decoder_blocks, gamma
):
    scaled = ["attention.value", "attention.output", "feed_forward.ffn_in", "feed_forward.ffn_out"]
    found = differing(gains(placed("sub-ln", kind, encoder_blocks, decoder_blocks)))
    assert found == pytest.approx(dict.fromkeys(scaled, gamma), abs=5e-4)
    if encoder_blocks and decoder_blocks:
        cross = ["cross_attention.value", "cross_attention.output"] if kind == "decoder" else []
        found = differing(gains(placed("sub-ln-cross", kind, encoder_blocks, decoder_blocks)))
        assert found == pytest.approx(dict.fromkeys(scaled + cross, gamma), abs=5e-4)


@pytest.mark.parametrize(
    ("kind", "encoder_blocks", "decoder_blocks", "sublayers", "log_n"),
    [
        ("encoder", 6, 0, 12, 2.017),
        ("encoder", 6, 6, 12, 2.017),
        ("decoder", 0, 6, 12, 2.017),
        ("decoder", 6, 6, 18, 2.335),
        ("encoder", 18, 0, 36, 3.041),
        ("encoder", 100, 100, 200, 6.075),
        ("decoder", 100, 100, 300, 7.193),
    ],
)
def test_skips_that_count_sublayers(kind, encoder_blocks, decoder_blocks, sublayers, log_n):
    """admin-torch's two rules, and KEEL's: 12 in an encoder of 6 blocks, 18 in a decoder that
    attends to it.
    """

    def skip_scale(name: str) -> float:
        return placed(name, kind, encoder_blocks, decoder_blocks).skip_scale

    assert skip_scale("admin-log-n") == pytest.approx(log_n, abs=5e-4)
    assert skip_scale("admin-constant") == pytest.approx(sublayers**0.5, rel=1e-15)
    assert skip_scale("keel") == skip_scale("keel-pre-first") == sublayers


class TestAdmin:
    # Of the 100-block encoder in admin-torch's profile of WMT, which Transformer-Clinic wrote: its
    # first skip scales after that of 1.
    CODE = (1.3190, 1.4550, 1.5123, 1.6428)

    def test_a_scale_is_the_root_of_all_variances_before_it(self):
        """Liu et al. 2020, section 4. A first branch of variance 1.038 gives 1.019; with 1 added it
        would be 1.428.
        """
        admin = placed("admin", "encoder", 6, 0)
        assert admin.profiled([1.038], 7.0) == {"skip_scale": pytest.approx(1.019, abs=5e-4)}
        assert admin.profiled([0.75, 1.5, 1.75], 7.0) == {"skip_scale": pytest.approx(2.0)}

    def test_the_code_gains_every_variance_from_that_of_the_embedding_on(self):
        clinic, embedding = placed("admin-clinic", "encoder", 6, 0), 0.9
        squares = [embedding, *(scale**2 for scale in self.CODE)]
        variances = [later - earlier for earlier, later in pairwise(squares)]
        for number, expected in enumerate(self.CODE, 1):
            assert clinic.profiled(variances[:number], embedding) == {
                "skip_scale": pytest.approx(expected, rel=1e-12)
            }

    def test_the_code_starts_from_the_variance_of_the_embedding(self):
        clinic = placed("admin-clinic", "decoder", 6, 6)
        assert clinic.profiled([0.25], 1.5) == {"skip_scale": pytest.approx(1.75**0.5)}
        assert clinic.profiled([0.25, 0.5], 1.5) == {"skip_scale": pytest.approx(1.5)}

    def test_nobody_else_asks_for_a_batch(self):
        assert placed("post-ln", "encoder", 6, 0).profiled([0.5], 1.0) == {}
        assert placed("admin-log-n", "encoder", 6, 0).profiled([0.5], 1.0) == {}


def test_t_fixup():
    encoder, decoder = (placed("t-fixup", *sizes) for sizes in BOTH)
    assert set(gains(encoder)) - set(differing(gains(encoder))) == {
        "attention.query",
        "attention.key",
    }
    assert only(differing(gains(encoder))) == pytest.approx(0.4281, abs=5e-5)
    assert set(gains(decoder)) - set(differing(gains(decoder))) == {
        f"{kind}.{matrix}"
        for kind in ("attention", "cross_attention")
        for matrix in ("query", "key")
    }
    assert only(differing(gains(decoder))) == pytest.approx(0.3689, abs=5e-5)
    assert encoder.embedding_gain() == pytest.approx(0.3689, abs=5e-5)
    assert placed("t-fixup", "encoder", 12, 6).embedding_gain() == pytest.approx(108**-0.25)
    assert placed("t-fixup", "decoder", 12, 6).embedding_gain() == pytest.approx(54**-0.25)


@pytest.mark.parametrize(("name", "power"), [("ds-init", -0.5), ("ds-init-code", -0.25)])
def test_ds_init_counts_blocks_anew_in_each_stack(name, power):
    for sizes in BOTH:
        for block in range(1, 7):
            assert only(gains(placed(name, *sizes), block)) == block**power


@pytest.mark.parametrize(
    "name", ["gpt2", "sandwich", "hybrid-norm", "hybrid-norm-star", "hybrid-norm-width"]
)
@pytest.mark.parametrize(
    ("kind", "encoder_blocks", "decoder_blocks", "root"),
    [("decoder", 0, 12, 24), ("encoder", 6, 6, 12), ("decoder", 6, 6, 18)],
)
def test_last_matrices_over_the_root_of_the_sublayers(
    name, kind, encoder_blocks, decoder_blocks, root
):
    """1/√(2L) in a decoder-only model of L blocks, as nanoGPT, CogView and Megatron have it."""
    placement = placed(name, kind, encoder_blocks, decoder_blocks)
    for block in (1, placement.stack.blocks):
        found = differing(gains(placement, block))
        assert found.keys() == {n for n in gains(placement) if n.endswith((".output", ".ffn_out"))}
        assert only(found) == pytest.approx(1 / math.sqrt(root))


@pytest.mark.parametrize("sizes", BOTH)
def test_b2t_rescaled_divides_every_matrix(sizes):
    assert only(gains(placed("b2t-rescaled", *sizes))) == pytest.approx(6**-0.5)
    assert differing(gains(placed("b2t", *sizes))) == {}


@pytest.mark.parametrize(
    "name", ["post-ln", "pre-ln", "lns", "mix-ln", "keel", "peri-ln", "attn-res", "ngpt", "olmo-2"]
)
def test_no_gain_where_the_source_has_none(name):
    for sizes in BOTH:
        placement = placed(name, *sizes)
        assert differing(gains(placement, block=6)) == {}
        assert placement.embedding_gain() == 1


@pytest.mark.parametrize(
    ("blocks", "post"), [(3, 0), (4, 1), (6, 1), (7, 1), (8, 2), (12, 3), (24, 6), (32, 8)]
)
def test_mix_ln_rounds_a_quarter_down(blocks, post):
    assert placed("mix-ln", "decoder", 0, blocks).post_blocks == post
    assert placed("mix-ln", "encoder", blocks, 12).post_blocks == post


@pytest.mark.parametrize(
    ("kind", "encoder_blocks", "decoder_blocks", "size"),
    [
        ("decoder", 0, 16, 2),  # Kimi team 2026: 32 sub-layers, 8 groups
        ("decoder", 0, 4, 1),
        ("decoder", 0, 8, 1),
        (
            "decoder",
            0,
            12,
            2,
        ),  # 6 groups; groups of ⌈24/8⌉ = 3 sub-layers would end inside every second block
        ("decoder", 0, 24, 3),
        ("decoder", 0, 93, 12),  # Kimi K3: 8 groups of 12 layers, the last of 9
        ("decoder", 6, 6, 1),
        ("encoder", 27, 0, 4),
    ],
)
def test_attention_residuals_have_at_most_8_groups_of_whole_blocks(
    kind, encoder_blocks, decoder_blocks, size
):
    placement = placed("attn-res-block", kind, encoder_blocks, decoder_blocks)
    assert placement.group_blocks == size
    assert math.ceil(placement.stack.blocks / size) <= 8


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_groups_of_attention_residuals_close_between_blocks_alone(kind):
    """At 12 blocks of 2 sub-layers and of 3: every block begins where the history is 1 + the groups
    closed so far.
    """
    placement = placed("attn-res-block", kind, 12, 12)
    history: tuple[int, ...] = (0,)
    lengths = []
    for block in range(1, 13):
        for number, sublayer_kind in enumerate(placement.stack.kinds):
            sublayer = SimpleNamespace(
                site=Site(kind=sublayer_kind, block=block, stack=placement.stack)
            )
            history = placement.extended(history, 1, sublayer)
            if number == 0:
                lengths.append(len(history))
    assert lengths == [2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]
    assert sum(history) == 12 * len(placement.stack.kinds)


def test_numbers_that_learn_start_where_their_papers_say():
    """A stored number times the constant in front of it: nGPT's step starts at 0.05, its s_qk at
    1.
    """
    found = {}

    class Asked:
        def parameter(self, name, *, initial, **_):
            found[name] = initial
            return initial

    ngpt = placed("ngpt", "decoder", 0, 6)
    assert ngpt._stored(Asked(), "step", 0.05) == pytest.approx(0.05)
    assert ngpt._stored(Asked(), "s_qk", 1.0) == pytest.approx(1.0)
    assert ngpt.output_rows(1.0, Asked(), 5) == pytest.approx(8**-0.5)
    assert found == dict.fromkeys(("step", "s_qk", "s_z"), pytest.approx(8**-0.5))
