"""Tokenisers as other libraries take them: a `tokenizer.json` that adds a model's special tokens
itself.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.processors import TemplateProcessing

from ..data.documents.tokeniser import CLS, MASK, PAD, SEP, UNK, TextTokeniser
from ..data.parallel.codec import Codec
from ..data.parallel.vocabulary import SPECIAL_TOKENS
from ..data.words import TokenizerFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The information in a folder about a model's tokens."""

    ids: Mapping[str, int]
    """Special token -> id, by the names of BERT's ([PAD], [UNK], [CLS], [SEP], [MASK]) or fairseq's
    (<s>, <pad>, …).
    """
    source: list[str]
    """Tokens by id; of a model with one vocabulary, all of them."""
    target: list[str]
    files: Mapping[str, str]
    """Tokeniser files by name: a `tokenizer.json` and what it takes to open it."""


def of_codec(codec: Codec) -> Words:
    """Returns the words of a translation run. Moses tokenisation and lower-casing come before them
    and are not in the files.

    Files: `tokenizer.json`, of the source language where each has its own; then also
    `target.tokenizer.json`.
    """
    source, target = codec.source.vocabulary.tokens, codec.target.vocabulary.tokens
    bos, pad, eos, unk = SPECIAL_TOKENS
    opened = {
        "tokenizer.json": codec.source,
        **({} if codec.joint else {"target.tokenizer.json": codec.target}),
    }
    files = {
        n: _with_template(side.vocabulary, f"$A {eos}", [eos], SPECIAL_TOKENS)
        for n, side in opened.items()
    }
    files["tokenizer_config.json"] = _config(
        {"bos_token": bos, "pad_token": pad, "eos_token": eos, "unk_token": unk}
    )
    return Words(
        ids={token: i for i, token in enumerate(SPECIAL_TOKENS)},
        source=source,
        target=target,
        files=files,
    )


def of_encoder(tokeniser: TextTokeniser) -> Words:
    """Returns the words of a masked-LM run: [CLS] sentence [SEP] sentence [SEP], with segments 0
    and 1.
    """
    names = {special: tokeniser.tokens[i] for special, i in tokeniser.ids.items()}
    cls, sep = names[CLS], names[SEP]
    pair = f"{cls} $A {sep} $B:1 {sep}:1"
    template = _with_template(tokeniser, f"{cls} $A {sep}", [cls, sep], tuple(names.values()), pair)
    roles = {
        "pad_token": PAD,
        "unk_token": UNK,
        "cls_token": CLS,
        "sep_token": SEP,
        "mask_token": MASK,
    }
    return _of_text(
        tokeniser,
        template,
        {role: names[special] for role, special in roles.items()},
        segments=True,
    )


def of_decoder(tokeniser: TextTokeniser) -> Words:
    """Returns the words of a language-model run: the text as it is, with nothing added. [SEP]
    stands before and behind every document.
    """
    names = {special: tokeniser.tokens[i] for special, i in tokeniser.ids.items()}
    roles = {"pad_token": PAD, "unk_token": UNK, "bos_token": SEP, "eos_token": SEP}
    return _of_text(
        tokeniser, tokeniser.to_json(), {role: names[special] for role, special in roles.items()}
    )


def _of_text(
    tokeniser: TextTokeniser, tokenizer: str, names: dict[str, str], *, segments: bool = False
) -> Words:
    files = {
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": _config(names, segments=segments),
    }
    return Words(ids=tokeniser.ids, source=tokeniser.tokens, target=tokeniser.tokens, files=files)


def _with_template(
    file: TokenizerFile,
    single: str,
    added: list[str],
    special: tuple[str, ...],
    pair: str | None = None,
) -> str:
    """Returns the file of a tokeniser that knows its special tokens as such and puts `added` ones
    around its texts.
    """
    tokenizer: Any = Tokenizer.from_str(file.to_json())
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special]
    )
    tokenizer.post_processor = TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in added],
    )
    return str(tokenizer.to_str(pretty=False))


def _config(names: dict[str, str], *, segments: bool = False) -> str:
    inputs = ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"]
    values = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": inputs,
        "clean_up_tokenization_spaces": False,
        **names,
    }
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"
