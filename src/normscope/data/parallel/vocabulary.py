"""Tokenised words to numbers and back: byte-pair encoding learned from text, or a fixed list of
words.

The four special ids are fairseq's (`fairseq/data/dictionary.py`), so that tables of embeddings can
be compared.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from tokenizers import Tokenizer
from tokenizers.decoders import BPEDecoder
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from ...errors import UserError
from ..words import TokenizerFile, refuse_fewer, repeated, trained

BOS = 0
PAD = 1
EOS = 2
UNK = 3
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
END_OF_WORD = "</w>"


class Vocabulary(TokenizerFile):
    """Token ids of one language, or of two that share them. Words are what stands between
    whitespace.
    """

    noun, unusable = "vocabulary", "not a vocabulary of NormScope or damaged ({}); prepare it again"

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Wraps a tokenizer of the tokenizers library. Raises ValueError unless ids 0 to 3 are
        `SPECIAL_TOKENS` and the model is BPE or WordLevel.
        """
        ids = tokenizer.get_vocab()
        tokens = sorted(ids, key=lambda token: ids[token])
        if [ids[token] for token in tokens] != list(range(len(tokens))) or tuple(
            tokens[:4]
        ) != SPECIAL_TOKENS:
            raise ValueError(
                f"ids must run from 0 without gaps and begin with {', '.join(SPECIAL_TOKENS)}"
            )
        if not isinstance(tokenizer.model, BPE | WordLevel):
            raise ValueError(f"need a BPE or WordLevel model, got {type(tokenizer.model).__name__}")
        super().__init__(tokenizer)
        self.tokens = tokens
        whole_words = isinstance(tokenizer.model, WordLevel)
        self._printed = [_printed(token, whole_word=whole_words) for token in tokens]

    @classmethod
    def of_counts(cls, counts: Mapping[str, int], size: int) -> Self:
        """Byte-pair encoding of exactly `size` entries, special tokens and characters included.

        counts: how often each word occurs. The same counts give the same vocabulary in every
        process, whatever the number of threads. Raises UserError where the text cannot give `size`
        entries or its characters need more.
        """
        alphabet = _alphabet(counts)
        smallest = len(SPECIAL_TOKENS) + len(alphabet)
        if size < smallest:
            raise UserError(
                f"vocabulary size {size} is too small: the characters of this text and the special "
                f"tokens alone are {smallest}; ask for more than that"
            )
        # The trainer numbers the word-final characters in the order of a hash table that differs
        # from process to process, and breaks ties between merges by these numbers. Given as special
        # tokens they are numbered by us.
        marks: Any = {"unk_token": SPECIAL_TOKENS[UNK], "end_of_word_suffix": END_OF_WORD}
        special = [*SPECIAL_TOKENS, *alphabet]
        learned = trained(
            BPE(**marks), repeated(counts), size, special, end_of_word_suffix=END_OF_WORD
        )
        refuse_fewer(learned, size)
        # A fresh tokenizer around the learned model: in the learned one the special tokens are cut
        # out of any text that happens to spell them, and "<pad>" in a sentence would become
        # padding.
        model = json.loads(learned.to_str())["model"]
        tokenizer = Tokenizer(
            BPE(vocab=model["vocab"], merges=list(map(tuple, model["merges"])), **marks)
        )
        tokenizer.pre_tokenizer = WhitespaceSplit()
        tokenizer.decoder = BPEDecoder(suffix=END_OF_WORD)
        return cls(tokenizer)

    @classmethod
    def of_words(cls, words: Sequence[str]) -> Self:
        """Returns one id a word, in the order given, from 4 on; words are distinct, no special
        tokens, and without blanks.
        """
        ids = {token: i for i, token in enumerate([*SPECIAL_TOKENS, *words])}
        tokenizer = Tokenizer(WordLevel(vocab=ids, unk_token=SPECIAL_TOKENS[UNK]))
        tokenizer.pre_tokenizer = WhitespaceSplit()
        return cls(tokenizer)

    def __len__(self) -> int:
        return len(self._printed)

    def encode(self, line: str) -> list[int]:
        """Returns the ids of a tokenised line, without EOS.

        UNK stands for a character that the learned text lacks, or lacks at the end of a word
        (of_words: for a word).
        """
        return _without_special(self._tokenizer.encode(line, add_special_tokens=False).ids)

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each, on all cores."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [_without_special(encoding.ids) for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the tokenised line: BOS, PAD and EOS are dropped, pieces joined to words, UNK
        printed as a word of its own.

        Raises IndexError for an id outside the vocabulary.
        """
        pieces = []
        for i in ids:
            if not 0 <= i < len(self):
                raise IndexError(f"token id {i} is outside the vocabulary of {len(self)}")
            if i not in (BOS, PAD, EOS):
                pieces.append(self._printed[i])
        return "".join(pieces).rstrip(" ")


def _printed(token: str, *, whole_word: bool) -> str:
    if whole_word or token in SPECIAL_TOKENS:
        return token + " "
    return token.removesuffix(END_OF_WORD) + " " if token.endswith(END_OF_WORD) else token


def _alphabet(words: Iterable[str]) -> list[str]:
    """Returns all characters in code point order, then those that end a word, marked."""
    inside: set[str] = set()
    final: set[str] = set()
    for word in words:
        inside.update(word)
        final.add(word[-1])
    return [*sorted(inside), *(character + END_OF_WORD for character in sorted(final))]


def _without_special(ids: list[int]) -> list[int]:
    """Merges may spell "<s>" inside a word; as text it must never act as the special token."""
    return [max(i, UNK) for i in ids] if ids and min(ids) < UNK else ids
