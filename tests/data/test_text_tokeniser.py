"""WordPiece against greedy longest-match by hand, byte-level BPE against merges by hand, and any
text coming back.
"""

import json
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram

from normscope.data.documents.tokeniser import (
    CLS,
    MASK,
    PAD,
    SEP,
    SPECIALS,
    UNK,
    TextTokeniser,
    _text,
)
from normscope.data.toy import toy_pairs
from normscope.errors import UserError

SIZE = 300
TEXTS = [english for _, english in toy_pairs(300, seed=1, split="train")]
BY_BYTES = (
    "A house, the houses; the House's houseboats: 1,234.5 €! Zürich's naïve café \u2014 日本語 🙂 "
    "the the houses\n" * 3
)


def learned(kind: str = "wordpiece", size: int = SIZE, *, lowercase: bool = True) -> TextTokeniser:
    return TextTokeniser.learn(TEXTS, size, kind=kind, lowercase=lowercase)


WORDPIECE = learned()
BYTES = TextTokeniser.learn([BY_BYTES], 290, kind="bpe", lowercase=False)


def greedy(word: str, vocabulary: set[str]) -> list[str]:
    """Longest piece first, as Wu et al. 2016 cut a word; [UNK] where no cut is found."""
    pieces: list[str] = []
    while word:
        marked = [("##" if pieces else "") + word[:end] for end in range(len(word), 0, -1)]
        piece = next((piece for piece in marked if piece in vocabulary), None)
        if piece is None:
            return [UNK]
        pieces.append(piece)
        word = word[len(piece.removeprefix("##")) if len(pieces) > 1 else len(piece) :]
    return pieces


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_a_learned_vocabulary_has_exactly_the_entries_asked_for_special_ones_first(
    kind: str,
) -> None:
    tokeniser = learned(kind)
    assert len(tokeniser) == len(set(tokeniser.tokens)) == SIZE
    assert [tokeniser.ids[special] for special in (PAD, UNK, CLS, SEP, MASK)] == [0, 1, 2, 3, 4]
    assert tokeniser.tokens[:5] == list(SPECIALS)
    assert tokeniser.regular_ids.tolist() == list(range(5, SIZE))


def test_words_are_cut_longest_piece_first() -> None:
    vocabulary, cuts = set(WORDPIECE.tokens), 0
    for text, ids in zip(TEXTS[:100], WORDPIECE.encode_many(TEXTS[:100]), strict=True):
        words = [
            greedy(word, vocabulary)
            for word in text.replace(",", " , ").replace(".", " . ").split()
        ]
        assert [WORDPIECE.tokens[i] for i in ids] == [piece for pieces in words for piece in pieces]
        cuts += sum(len(pieces) > 1 for pieces in words)
    assert cuts > 100  # else whole words alone would do


def test_merges_are_the_most_frequent_pairs() -> None:
    """Byte-pair encoding by hand (Sennrich et al. 2016), on words whose pairs have distinct
    counts.
    """
    words = {"hug": 10, "pug": 5, "pun": 12, "bun": 4, "hugs": 5, "hu": 3}
    text = " ".join(word for word, count in words.items() for _ in range(count))
    tokeniser = TextTokeniser.learn([text], 5 + 256 + 6, kind="bpe", lowercase=False)
    cut = {word: ["Ġ", *word] for word in words}
    merges = []
    for _ in range(6):
        counts: Counter[tuple[str, str]] = Counter()
        for word, pieces in cut.items():
            for pair in pairwise(pieces):
                counts[pair] += words[word]
        (best, count), (_, second) = counts.most_common(2)
        assert count > second  # no tie: which of two comes first is nobody's promise
        merges.append("".join(best))
        for word, pieces in cut.items():
            joined = [pieces[0]]
            for piece in pieces[1:]:
                if (joined[-1], piece) == best:
                    joined[-1] += piece
                else:
                    joined.append(piece)
            cut[word] = joined
    assert tokeniser.tokens[5 + 256 :] == merges
    assert [
        [tokeniser.tokens[i] for i in ids] for ids in tokeniser.encode_many(list(words))
    ] == list(cut.values())


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=40))
def test_any_text_comes_back_from_bytes(text: str) -> None:
    assume(not any(special in text for special in SPECIALS))
    (ids,) = BYTES.encode_many([text])
    assert BYTES.decode(ids).removeprefix(" ") == unicodedata.normalize("NFC", text).removeprefix(
        " "
    )
    assert BYTES.ids[UNK] not in ids


def test_text_comes_back_from_wordpieces_in_small_letters_and_without_accents() -> None:
    (ids,) = WORDPIECE.encode_many([TEXTS[0].upper()])
    assert WORDPIECE.decode(ids) == TEXTS[0].replace(" ,", ",").replace(" .", ".")
    cased = learned(lowercase=False)
    assert UNK in [cased.tokens[i] for i in cased.encode_many([TEXTS[0].upper()])[0]]


@pytest.mark.parametrize("tokeniser", [WORDPIECE, BYTES], ids=["wordpiece", "bpe"])
def test_what_merely_spells_a_special_token_is_unknown(tokeniser: TextTokeniser) -> None:
    for special in SPECIALS:
        (ids,) = tokeniser.encode_many([f"the {special} houses"])
        assert not set(ids) & ({*tokeniser.ids.values()} - {tokeniser.ids[UNK]})
        assert tokeniser.ids[UNK] in ids


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_the_same_texts_give_the_same_bytes_in_every_process(kind: str) -> None:
    program = (
        "from normscope.data.toy import toy_pairs; from normscope.data.documents.tokeniser import "
        "*;texts = [e for _, e in toy_pairs(300, seed=1, split='train')];"
        f"print(TextTokeniser.learn(texts, {SIZE}, kind={kind!r}, lowercase=True).to_json())"
    )
    other = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert other.stdout.rstrip("\n") == learned(kind).to_json()


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_a_size_that_cannot_be_is_refused_with_one_that_can(kind: str) -> None:
    with pytest.raises(
        UserError, match=r"vocabulary size 9 is too small: .* are \d+; ask for that or more"
    ) as error:
        learned(kind, 9)
    least = int(str(error.value).split(" are ")[1].split(";")[0])
    assert len(learned(kind, least)) == least
    with pytest.raises(UserError, match="more than this text allows: at most ") as error:
        learned(kind, 100_000)
    most = int(str(error.value).split("at most ")[1].split()[0])
    assert len(learned(kind, most)) == most


def test_save_and_load(tmp_path: Path) -> None:
    WORDPIECE.save(tmp_path / "tokenizer.json")
    again = TextTokeniser.load(tmp_path / "tokenizer.json")
    assert (
        again.to_json()
        == WORDPIECE.to_json()
        == (tmp_path / "tokenizer.json").read_text(encoding="utf-8")
    )
    assert again.encode_many(TEXTS[:5]) == WORDPIECE.encode_many(TEXTS[:5])


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent.json: cannot read the tokeniser \(No such file"):
        TextTokeniser.load(tmp_path / "absent.json")
    file = tmp_path / "tokenizer.json"
    gap = json.loads(WORDPIECE.to_json())
    gap["model"]["vocab"]["far"] = 10_000
    plain = Tokenizer(
        BPE(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[MASK]": 3, "a": 4}, merges=[])
    ).to_str()
    for text, message in (
        ("{", "not a tokenizer.json"),
        (plain, r"has no token \[SEP\] or </s> or <\|endoftext"),
        (json.dumps(gap), "do not run from 0 without gaps"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=message):
            TextTokeniser.load(file)


def test_cutting_padding_and_added_tokens_of_a_foreign_file_are_left_out() -> None:
    foreign = Tokenizer.from_str(WORDPIECE.to_json())
    foreign.enable_truncation(3)
    foreign.enable_padding(length=50)
    assert TextTokeniser(foreign).encode_many(TEXTS[:3]) == WORDPIECE.encode_many(TEXTS[:3])


def test_words_begin_where_they_are_marked() -> None:
    begins = [
        token
        for token, begins in zip(WORDPIECE.tokens, WORDPIECE.begins_word_V, strict=True)
        if begins
    ]
    assert begins == [token for token in WORDPIECE.tokens if not token.startswith("##")]
    (ids,) = BYTES.encode_many(["the houseboats"])
    words = "".join(
        BYTES.decode([i]) if not BYTES.begins_word_V[i] else "|" + BYTES.decode([i]) for i in ids
    )
    assert words == "| the| houseboats"


def test_roberta_s_names_and_sentencepiece_s_marks_are_known() -> None:
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "▁the", "▁house", "s"]
    tokeniser = TextTokeniser(Tokenizer(Unigram([(piece, -1.0) for piece in pieces], unk_id=3)))
    assert [tokeniser.ids[special] for special in (PAD, UNK, CLS, SEP, MASK)] == [1, 3, 0, 2, 4]
    assert np.flatnonzero(~tokeniser.begins_word_V).tolist() == [7]
    assert tokeniser.regular_ids.tolist() == [5, 6, 7]


def test_a_decoder_s_tokeniser_needs_an_end_alone(tmp_path: Path) -> None:
    pieces = ["<unk>", "<s>", "</s>", "▁the", "▁house"]
    tokeniser = TextTokeniser(Tokenizer(Unigram([(piece, -1.0) for piece in pieces], unk_id=0)))
    assert tokeniser.lacks == (PAD, MASK)
    assert tokeniser.ids[PAD] == tokeniser.ids[SEP] == 2
    assert TextTokeniser(Tokenizer.from_str(tokeniser.to_json())).to_json() == tokeniser.to_json()


def test_a_very_long_word_is_learned_from_in_pieces() -> None:
    """The trainer's time grows with the square of a word's length."""
    texts = list(_text({"ab" * 2600: 2, "short": 1}))
    words = " ".join(texts).split()
    assert max(map(len, words)) <= 200
    assert "".join(words) == "ab" * 2600 * 2 + "short"


def test_every_size_between_a_small_text_s_characters_and_its_pieces_can_be_had() -> None:
    """Where its most frequent characters alone give fewer entries, the others are taken in too."""
    text = [f"{chr(97 + i)}{chr(98 + i)} and {chr(97 + i)}{chr(98 + i)}" for i in range(24)]
    with pytest.raises(
        UserError, match=r"vocabulary size 40 is too small: .* are (\d+); ask for that or more"
    ) as small:
        TextTokeniser.learn(text, 40, kind="wordpiece", lowercase=False)
    with pytest.raises(
        UserError, match=r"more than this text allows: at most (\d+) entries"
    ) as large:
        TextTokeniser.learn(text, 999, kind="wordpiece", lowercase=False)
    least, most = (
        int(re.findall(r"(?:are|at most) (\d+)", str(error.value))[0]) for error in (small, large)
    )
    assert (least, most) == (
        5 + 2 * 25,
        5 + 2 * 25 + 24 + 2,
    )  # a piece for each pair of letters, and "and" in two steps
    for size in range(least, most + 1):
        tokeniser = TextTokeniser.learn(text, size, kind="wordpiece", lowercase=False)
        assert len(tokeniser) == size
        assert tokeniser.ids[UNK] not in {i for ids in tokeniser.encode_many(text) for i in ids}
