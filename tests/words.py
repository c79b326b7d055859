"""A tokeniser whose whole vocabulary can be read here."""

from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordPiece

from normscope.data.documents.tokeniser import TextTokeniser


def word_tokeniser(*words: str) -> TextTokeniser:
    """The five special tokens, then these words."""
    vocabulary = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])}
    tokenizer = Tokenizer(WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return TextTokeniser(tokenizer)
