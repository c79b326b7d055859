"""Laws of single tokens and of pictures, where they must be silent, and what they count."""

import pytest
import torch
from torch import Tensor, nn

from doctor.waves.case import Case, found
from doctor.waves.of_attention import Windowed
from doctor.waves.of_context import BothWays, Packed, masked_language, packed, with_parts
from doctor.waves.of_pictures import CutInStrips, classified
from doctor.waves.parts import HEADS, VOCABULARY, Attention, Decoder, tokens
from normscope.doctor.laws.pictures import picture_uses
from normscope.doctor.laws.tokens import token_uses
from normscope.doctor.laws.trial import TrialLimits, Untried, trial_of
from normscope.doctor.observe.around.sinusoids import turns


def uses_of(case: Case, *, asks_for_others: bool = False):
    with trial_of(case.model, case.inputs, case.loss, TrialLimits()) as trial:
        return token_uses(trial, asks_for_others=asks_for_others)


class Sees(Attention):
    """A window of as many tokens in every block."""

    LENGTH = 4

    def seen(self, length: int) -> Tensor:
        at = torch.arange(length)
        return super().seen(length) & (at[:, None] - at < self.LENGTH)


class InBlocks(Attention):
    """Blocks of eight tokens that see nothing outside of themselves."""

    def seen(self, length: int) -> Tensor:
        block = torch.arange(length) // 8
        return super().seen(length) & (block[:, None] == block)


@pytest.mark.parametrize("mixer", [Attention, BothWays, Windowed, Sees])
def test_a_window_that_moves_along_is_no_wall(mixer):
    assert uses_of(with_parts(mixer)).wall == 0


def test_blocks_of_tokens_that_see_no_others_are_a_wall():
    assert uses_of(with_parts(InBlocks)).wall == 16


def test_every_token_of_a_batch_is_told_apart():
    uses = uses_of(with_parts())
    assert uses.alike == ()
    assert uses.unread == ()
    assert uses.told_apart == uses.tokens == len(tokens().unique())


class Modulo(Decoder):
    """A table of half of the tokens."""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids % (VOCABULARY // 3))


def test_tokens_modulo_a_number_are_one():
    uses = uses_of(Case(model=Modulo()))
    ids = tokens()
    rest = (ids % (VOCABULARY // 3)).unique()
    assert uses.told_apart == len(rest) < uses.tokens


def test_a_word_that_stands_for_hidden_ones_among_shown_ones_is_counted():
    uses = uses_of(masked_language(BothWays, counts_all=True), asks_for_others=True)
    assert 0.5 < uses.shown < 1
    assert uses_of(masked_language(BothWays), asks_for_others=True).shown == 0


def test_documents_that_are_kept_apart_are_no_fault():
    assert uses_of(packed(Packed())).documents == ""


class KeySlopes(Attention):
    """Biases that rise from key to key: to a softmax, biases by distance, as BLOOM adds them."""

    def placed(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return q, k, v

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        slopes = 2.0 ** -torch.arange(1, HEADS + 1)
        scores = q @ k.mT / 4 + slopes[:, None, None] * torch.arange(k.shape[-2])
        return scores.masked_fill(~self.seen(q.shape[-2]), float("-inf")).softmax(-1)


def test_slopes_over_keys_are_biases_by_distance():
    assert found(with_parts(KeySlopes)) == []


def test_strips_of_a_picture_are_counted_and_pieces_are_not():
    case = classified(CutInStrips())
    with trial_of(case.model, case.inputs, case.loss, TrialLimits()) as trial:
        uses = picture_uses(trial)
    assert uses.pieces == uses.scattered == 36


def test_without_a_picture_or_tokens_the_laws_are_not_asked():
    case = Case(model=nn.Linear(4, 4), inputs=(torch.randn(2, 4),), loss=lambda y: y.mean())
    with trial_of(case.model, case.inputs, case.loss, TrialLimits()) as trial:
        with pytest.raises(Untried, match="picture"):
            picture_uses(trial)
        with pytest.raises(Untried, match="tokens"):
            token_uses(trial, asks_for_others=False)


def test_pairs_of_sines_turn_by_their_frequencies_and_drawn_rows_do_not():
    frequencies = torch.tensor([1.0, 0.3, 0.1, 0.03])
    by = torch.arange(12.0)[:, None] * frequencies
    halves = torch.cat([by.sin(), by.cos()], 1)
    assert torch.allclose(turns(halves).float(), frequencies, atol=1e-5)
    assert turns(torch.randn(12, 8, generator=torch.Generator().manual_seed(0))) is None
