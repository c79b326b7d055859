"""Learning a tokeniser from the counts of words: WordPiece as BERT's, or BPE over bytes as GPT-2's."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordPiece
from tokenizers.trainers import BpeTrainer

from ...errors import UserError

Kind = Literal["wordpiece", "bpe"]

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_UNK = SPECIALS[1]
_CONTINUES = "##"
_MIN_PAIR_COUNT = 2
_ALPHABET_SHARE = 8
"""WordPiece has an entry a character, and one more for it inside a word: at most an eighth of the vocabulary each."""
_WORDS_A_STRING = 1000


def steps(kind: Kind, lowercase: bool) -> tuple[Any, Any]:
    """The normaliser of a kind of tokeniser, and what splits its texts into words."""
    if kind == "wordpiece":
        return normalizers.BertNormalizer(lowercase=lowercase), pre_tokenizers.BertPreTokenizer()
    normalizer = normalizers.Sequence([normalizers.NFC(), *([normalizers.Lowercase()] if lowercase else [])])
    # A blank before the first word, so that it is the same token as inside a sentence.
    return normalizer, pre_tokenizers.ByteLevel(add_prefix_space=True)


def learned(counts: Mapping[str, int], size: int, kind: Kind, lowercase: bool) -> Tokenizer:
    """A tokeniser of exactly `size` entries. Raises UserError as `TextTokeniser.learn`."""
    learn = _learned_wordpiece if kind == "wordpiece" else _learned_bpe
    tokenizer = learn(counts, size)
    tokenizer.normalizer, tokenizer.pre_tokenizer = steps(kind, lowercase)
    return tokenizer


def _learned_bpe(counts: Mapping[str, int], size: int) -> Tokenizer:
    tokenizer = Tokenizer(BPE())
    # The words are in the alphabet of bytes already, which has no blanks.
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=size,
        min_frequency=_MIN_PAIR_COUNT,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_repeated(counts), trainer)
    _check_size(tokenizer, size, len(SPECIALS) + 256)
    return tokenizer


def _learned_wordpiece(counts: Mapping[str, int], size: int) -> Tokenizer:
    characters = _characters(counts)
    alphabet = _alphabet(characters, size // _ALPHABET_SHARE)
    # As special tokens, numbered here: the trainer numbers pieces inside a word in the order of a hash table, and
    # breaks ties between merges by these numbers.
    trainer = BpeTrainer(
        vocab_size=size,
        min_frequency=_MIN_PAIR_COUNT,
        special_tokens=[*SPECIALS, *alphabet],
        limit_alphabet=0,
        continuing_subword_prefix=_CONTINUES,
        show_progress=False,
    )
    known = {character.removeprefix(_CONTINUES) for character in alphabet}
    spelt = {word: count for word, count in counts.items() if known.issuperset(word)}
    trained = Tokenizer(BPE(unk_token=_UNK, continuing_subword_prefix=_CONTINUES))
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trained.train_from_iterator(_repeated(spelt), trainer)
    if trained.get_vocab_size() < size < _ALPHABET_SHARE * len(characters):
        raise UserError(
            f"vocabulary size {size} is too small: it has no room for the {len(characters)} characters of this text, "
            f"and the words without the others give {trained.get_vocab_size()} entries; ask for at least "
            f"{_ALPHABET_SHARE * len(characters)}"
        )
    _check_size(trained, size, len(SPECIALS) + len(alphabet))
    vocabulary = json.loads(trained.to_str())["model"]["vocab"]
    model: Any = WordPiece(vocab=vocabulary, unk_token=_UNK, continuing_subword_prefix=_CONTINUES)
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens([AddedToken(special, special=True, normalized=False) for special in SPECIALS])
    tokenizer.decoder = decoders.WordPiece(prefix=_CONTINUES)
    return tokenizer


def _characters(words: Mapping[str, int]) -> Counter[str]:
    frequencies: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            frequencies[character] += count
    return frequencies


def _alphabet(frequencies: Counter[str], most: int) -> list[str]:
    """The most frequent characters in code point order, then the same as they stand inside a word."""
    kept = sorted(sorted(frequencies, key=lambda c: (-frequencies[c], c))[: max(most, 1)])
    return [*kept, *(_CONTINUES + character for character in kept)]


def _repeated(counts: Mapping[str, int]) -> Iterable[str]:
    """Text in which each word stands as often as counted: the trainer takes text, not counts."""
    for word in sorted(counts):
        whole, rest = divmod(counts[word], _WORDS_A_STRING)
        for repeats in [*([_WORDS_A_STRING] * whole), rest]:
            yield (word + " ") * repeats


def _check_size(tokenizer: Tokenizer, size: int, smallest: int) -> None:
    largest = tokenizer.get_vocab_size()
    if size < smallest:
        raise UserError(f"vocabulary size {size} is too small: characters and special tokens alone are {smallest}")
    if largest < size:
        raise UserError(
            f"vocabulary size {size} is more than this text allows: at most {largest} entries can be learned from it; "
            f"ask for {largest} or fewer, or give more text"
        )
