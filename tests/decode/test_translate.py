"""Lines in, lines out: order, empty and overlong lines, windows and batches."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from normscope.decode import translate
from normscope.decode.search import BeamConfig, beam_search
from normscope.decode.translate import LineTranslation, batches_by_length, translate_lines
from normscope.model import EncoderDecoder, ModelConfig

EOS = 2


class NumberCodec:
    """Words are numbers, and so are ids."""

    def __init__(self):
        self.encoded_lines = 0
        self.source = self

    def encode(self, raw_lines):
        self.encoded_lines += len(raw_lines)
        return [
            np.array([*(int(word) for word in line.split() if word != "-"), EOS])
            for line in raw_lines
        ]

    def decode_target_tokenised(self, ids):
        return " ".join(str(i) for i in ids if i != EOS)

    def decode_target(self, ids):
        return "".join(f"{i}." for i in ids if i != EOS)


@pytest.fixture(scope="module")
def model() -> EncoderDecoder:
    torch.manual_seed(0)
    config = ModelConfig(width=16, ffn_width=24, heads=2, encoder_blocks=1, decoder_blocks=1)
    model = EncoderDecoder(config, 30, 30).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def random_lines(count: int) -> list[str]:
    random = np.random.default_rng(0)
    return [
        " ".join(map(str, random.integers(4, 30, random.integers(1, 15)))) for _ in range(count)
    ]


def expected(
    model: EncoderDecoder, line: str, config: BeamConfig, *, cut: bool = False
) -> LineTranslation:
    ((best, *_),) = beam_search(
        model, [torch.tensor([*(int(word) for word in line.split()), EOS])], config
    )
    words = best.tokens[:-1]
    return LineTranslation("".join(f"{i}." for i in words), " ".join(map(str, words)), cut)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(("max_tokens", "window_lines"), [(4096, 1024), (60, 7), (1, 1)])
def test_order_is_kept_whatever_the_windows_and_batches(
    model, max_tokens, window_lines, monkeypatch
):
    monkeypatch.setattr(translate, "MAX_TOKENS", max_tokens)
    monkeypatch.setattr(translate, "WINDOW_LINES", window_lines)
    lines, config = random_lines(23), BeamConfig(beam=2)
    found = list(translate_lines(model, NumberCodec(), lines, config))
    assert len(found) == len(lines)
    assert found == [expected(model, line, config) for line in lines]


def test_empty_lines_do_not_reach_the_model(model):
    lines = ["", "5 6", "  \n", "-", "7 8\n"]
    found = list(translate_lines(model, NumberCodec(), lines))
    assert [bool(translation.tokenised) for translation in found] == [
        False,
        True,
        False,
        False,
        True,
    ]
    assert found[0] == found[2] == found[3] == LineTranslation("", "")


def test_only_empty_lines_need_no_model():
    assert list(translate_lines(None, NumberCodec(), ["", " "])) == [LineTranslation("", "")] * 2


def test_an_overlong_line_is_cut_and_says_so(model, monkeypatch):
    monkeypatch.setattr(translate, "LONGEST_SOURCE", 4)
    config = BeamConfig(beam=2)
    found = list(translate_lines(model, NumberCodec(), ["4 5 6 7 8", "4 5 6"], config))
    assert found[0] == expected(model, "4 5 6", config, cut=True)
    assert found[1] == expected(model, "4 5 6", config)


def test_input_is_read_window_by_window(model, monkeypatch):
    monkeypatch.setattr(translate, "WINDOW_LINES", 4)
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield "5 6 7"

    translations = translate_lines(model, NumberCodec(), endless(), BeamConfig(beam=1))
    assert read == 0
    for _ in range(5):
        next(translations)
    assert read == 8


def test_batches_hold_similar_lengths_within_the_budget():
    sources = {n: torch.zeros(length) for n, length in enumerate([3, 9, 4, 9, 30, 1])}
    assert list(batches_by_length(sources, 20)) == [[4], [1, 3], [2, 0, 5]]
