"""Vocabularies for tests: one whose words can all be read here, and one that is learned from
lines.
"""

from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordPiece

from normscope.data.documents.tokeniser import TextTokeniser
from normscope.data.parallel.vocabulary import Vocabulary


def word_tokeniser(*words: str) -> TextTokeniser:
    """The five special tokens, then these words."""
    vocabulary = {
        token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    }
    tokenizer = Tokenizer(WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return TextTokeniser(tokenizer)


def learned_from(lines: Iterable[str], size: int) -> Vocabulary:
    """From how often each word of tokenised lines occurs."""
    return Vocabulary.of_counts(Counter(word for line in lines for word in line.split()), size)
