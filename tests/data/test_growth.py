"""Tokenisers of others: what can grow or search without bound is refused, and what is in use is not."""

import json

import pytest

from normscope.data.documents.tokeniser import TextTokeniser
from normscope.data.words import refuse_growth
from normscope.errors import UserError
from words import word_tokeniser

GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
IN_CLASS = r"([)+*]|a)+"
UNKNOWN, A, B = 1, 5, 6
"""Ids of `word_tokeniser("a", "b")`."""


def replacing(times: int, pattern: dict[str, str], content: str) -> dict[str, object]:
    one = {"type": "Replace", "pattern": pattern, "content": content}
    return {"type": "Sequence", "normalizers": [one] * times}


def with_part(name: str, part: object) -> str:
    return json.dumps(json.loads(word_tokeniser("a", "b").to_json()) | {name: part})


@pytest.mark.parametrize(
    "part",
    [
        replacing(1, {"String": " "}, "▁"),  # SentencePiece's
        replacing(9, {"String": "ab"}, "cd"),
        replacing(6, {"String": "a"}, "aa"),
        replacing(3, {"Regex": " {2,}"}, " "),
        {"type": "Prepend", "prepend": "▁"},
    ],
)
def test_what_is_in_use_is_opened(part, tmp_path):
    (tmp_path / "tokenizer.json").write_text(with_part("normalizer", part))
    assert len(TextTokeniser.load(tmp_path / "tokenizer.json")) == 7


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        (GPT_2, [[], [], []]),
        (LLAMA_3, [[], [], []]),
        (IN_CLASS, [[B], [UNKNOWN, B], [UNKNOWN]]),
        (r"\(a+\)+", [[UNKNOWN], [B], [UNKNOWN]]),
        (r"(ab)+", [[A], [UNKNOWN], [UNKNOWN]]),
        # It finds the empty text between any two characters.
        (r"(a+)?", [[B], [UNKNOWN, UNKNOWN, B], [B, UNKNOWN, B]]),
    ],
)
def test_patterns_in_use_are_opened_and_find_what_they_are_for(pattern, left, tmp_path):
    """What a pattern finds is taken out here; what is left and is no word is unknown."""
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": False}
    (tmp_path / "tokenizer.json").write_text(with_part("pre_tokenizer", split))
    assert TextTokeniser.load(tmp_path / "tokenizer.json").encode_many(["aab", "(a)b", "ab b"]) == left


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("normalizer", replacing(40, {"String": " "}, "  ")),
        ("normalizer", replacing(1, {"String": "a"}, "a" * 100)),
        ("normalizer", replacing(3, {"Regex": ""}, "abcdef")),
        ("normalizer", {"type": "Sequence", "normalizers": [replacing(20, {"String": "a"}, "aa")] * 2}),
        ("decoder", {"type": "Sequence", "decoders": replacing(20, {"String": "a"}, "aa")["normalizers"]}),
    ],
)
def test_replacements_that_multiply_are_refused(name, part, tmp_path):
    (tmp_path / "tokenizer.json").write_text(with_part(name, part))
    with pytest.raises(UserError, match=f"the replacements of its {name} can make a line over 64 times as long"):
        TextTokeniser.load(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("pattern", [r"(a+)+b", r"((a|b)*c?)*d", r"(?:x*){2,}y", r"(\w+\s?)*$"])
def test_a_repetition_of_repetitions_is_refused_and_would_take_exponential_time(pattern):
    with pytest.raises(ValueError, match="of its pre_tokenizer repeats a repetition"):
        refuse_growth(json.dumps({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": pattern}}}))
