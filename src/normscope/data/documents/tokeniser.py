"""Text to token ids for language models: WordPiece as BERT's or BPE over bytes as GPT-2's, in one
`tokenizer.json`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordPiece

from ...errors import UserError
from ..words import TokenizerFile, refuse_fewer, repeated, trained, word_counts

TokeniserKind = Literal["wordpiece", "bpe"]

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_UNK = SPECIALS[1]
_CONTINUES = "##"
_ALPHABET_SHARE = 8
"""WordPiece has an entry a character, and one more for it inside a word: at most an eighth of the
vocabulary each, where the words of these characters give enough entries."""
_MOST_LEARNED_CHARACTERS = 200
"""The largest number of characters of a word in one piece; WordPiece leaves words of more than 100
unknown.
"""


def steps(kind: TokeniserKind, lowercase: bool) -> tuple[Any, Any]:
    """Returns the normaliser of a kind of tokeniser, and what splits its texts into words."""
    if kind == "wordpiece":
        return normalizers.BertNormalizer(lowercase=lowercase), pre_tokenizers.BertPreTokenizer()
    normalizer = normalizers.Sequence(
        [normalizers.NFC(), *([normalizers.Lowercase()] if lowercase else [])]
    )
    # A blank before the first word, so that it is the same token as inside a sentence.
    return normalizer, pre_tokenizers.ByteLevel(add_prefix_space=True)


def _learned_bpe(counts: Mapping[str, int], size: int) -> Tokenizer:
    # The words are in the alphabet of bytes already, which has no blanks.
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer = trained(BPE(), _text(counts), size, list(SPECIALS), initial_alphabet=alphabet)
    tokenizer.decoder = decoders.ByteLevel()
    _check_size(tokenizer, size, len(SPECIALS) + 256)
    return tokenizer


def _learned_wordpiece(counts: Mapping[str, int], size: int) -> Tokenizer:
    characters = Counter[str]()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    # A small text has too few words without its rarest characters, and room for them all.
    for most in (size // _ALPHABET_SHARE, len(characters)):
        alphabet = _alphabet(characters, most)
        learned = _trained_wordpiece(counts, alphabet, size)
        if learned.get_vocab_size() == size:
            break
    _check_size(learned, size, len(SPECIALS) + len(alphabet))
    vocabulary = json.loads(learned.to_str())["model"]["vocab"]
    model: Any = WordPiece(vocab=vocabulary, unk_token=_UNK, continuing_subword_prefix=_CONTINUES)
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens(
        [AddedToken(special, special=True, normalized=False) for special in SPECIALS]
    )
    tokenizer.decoder = decoders.WordPiece(prefix=_CONTINUES)
    return tokenizer


def _trained_wordpiece(counts: Mapping[str, int], alphabet: Sequence[str], size: int) -> Tokenizer:
    """Trains WordPiece on the words that the alphabet spells; it has fewer entries where they have
    no more pieces.
    """
    known = {character.removeprefix(_CONTINUES) for character in alphabet}
    spelt = {word: count for word, count in counts.items() if known.issuperset(word)}
    # As special tokens, numbered here: the trainer numbers pieces inside a word in the order of a
    # hash table, and breaks ties between merges by these numbers.
    special = [*SPECIALS, *alphabet]
    model = BPE(unk_token=_UNK, continuing_subword_prefix=_CONTINUES)
    return trained(
        model, _text(spelt), size, special, limit_alphabet=0, continuing_subword_prefix=_CONTINUES
    )


def _alphabet(frequencies: Counter[str], most: int) -> list[str]:
    """Returns the most frequent characters in code point order, then the same as they stand inside
    a word.
    """
    kept = sorted(sorted(frequencies, key=lambda c: (-frequencies[c], c))[: max(most, 1)])
    return [*kept, *(_CONTINUES + character for character in kept)]


def _text(counts: Mapping[str, int]) -> Iterator[str]:
    return repeated(dict(sorted(counts.items())), _MOST_LEARNED_CHARACTERS)


def _check_size(tokenizer: Tokenizer, size: int, smallest: int) -> None:
    if size < smallest:
        raise UserError(
            f"vocabulary size {size} is too small: characters and special tokens alone are "
            f"{smallest}; ask for that or more"
        )
    refuse_fewer(tokenizer, size)


PAD, UNK, CLS, SEP, MASK = SPECIALS
_WORD_BEGINS = ("Ġ", "▁")
"""The signs by which byte-level BPE and SentencePiece mark the beginning of a word."""
_NAMES = {
    PAD: ("[PAD]", "<pad>"),
    UNK: ("[UNK]", "<unk>"),
    CLS: ("[CLS]", "<s>"),
    SEP: ("[SEP]", "</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>"),
    MASK: ("[MASK]", "<mask>"),
}
"""The names of the special tokens in BERT and RoBERTa, and those of the end in GPT-2, Llama 3 and
Gemma.
"""


class TextTokeniser(TokenizerFile):
    """A `tokenizer.json` of the tokenizers library with the five special tokens of BERT, whatever
    their ids.

    A decoder's has an end of documents, [SEP] here, and not all of the others, which `lacks` names:
    their ids are the end's.
    """

    noun, unusable = "tokeniser", "not a tokenizer.json that can be used here ({})"

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Wraps a tokeniser of the tokenizers library. Raises ValueError for one without an end of
        documents, or with gaps in its ids.
        """
        ids = tokenizer.get_vocab(with_added_tokens=True)
        if sorted(ids.values()) != list(range(len(ids))):
            raise ValueError("its token ids do not run from 0 without gaps")
        super().__init__(tokenizer)
        # Our own sequences, without what a post-processor would add, and never cut or padded.
        tokenizer.no_padding()
        tokenizer.no_truncation()
        found = {}
        for special, names in _NAMES.items():
            found[special] = [ids[name] for name in names if name in ids]
        if not found[SEP]:
            raise ValueError(f"it has no token {' or '.join(_NAMES[SEP])}")
        self.lacks = tuple(special for special, numbers in found.items() if not numbers)
        self.ids = {special: (numbers or found[SEP])[0] for special, numbers in found.items()}
        self.tokens = sorted(ids, key=lambda token: ids[token])

    @classmethod
    def learn(
        cls, texts: Iterable[str], size: int, *, kind: TokeniserKind, lowercase: bool
    ) -> Self:
        """Returns a vocabulary of exactly `size` entries, special tokens included.

        wordpiece: as BERT's, Chinese characters apart and, with `lowercase`, without accents. bpe:
        over bytes, as GPT-2's and RoBERTa's, so that no text is unknown. The same texts give the
        same ids in every process. Raises UserError where the text cannot give `size` entries, or
        its characters need more.
        """
        return cls.of_counts(
            word_counts(texts, *steps(kind, lowercase)), size, kind=kind, lowercase=lowercase
        )

    @classmethod
    def of_counts(
        cls, counts: Mapping[str, int], size: int, *, kind: TokeniserKind, lowercase: bool
    ) -> Self:
        """Learns a tokeniser as `learn` does, from how often each word occurs, as `word_counts`
        counts with the `steps` of the kind.
        """
        tokenizer = (_learned_wordpiece if kind == "wordpiece" else _learned_bpe)(counts, size)
        tokenizer.normalizer, tokenizer.pre_tokenizer = steps(kind, lowercase)
        return cls(tokenizer)

    def __len__(self) -> int:
        return len(self.tokens)

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text without special tokens: what merely spells one, "[MASK]" in
        a sentence, is [UNK].
        """
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        special = set(self.ids.values())
        unknown = self.ids[UNK]
        found = []
        for encoding in encodings:
            found.append([unknown if i in special else i for i in encoding.ids])
        return found

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text, special tokens left out."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    @cached_property
    def begins_word_V(self) -> NDArray[np.bool_]:
        """True for a token that a word begins with, as whole-word masking groups them."""
        if isinstance(self._tokenizer.model, WordPiece):
            prefix = self._tokenizer.model.continuing_subword_prefix
            return np.array([not token.startswith(prefix) for token in self.tokens])
        special = set(self.ids.values())
        return np.array(
            [token.startswith(_WORD_BEGINS) or i in special for i, token in enumerate(self.tokens)]
        )

    @cached_property
    def regular_ids(self) -> NDArray[np.int64]:
        """The ids of all tokens that are not special, from which random tokens are drawn."""
        special = set(self.ids.values())
        return np.array([i for i in range(len(self)) if i not in special], dtype=np.int64)
