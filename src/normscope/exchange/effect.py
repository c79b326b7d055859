"""How far two models with one vocabulary are apart, on a few sentences: hidden states and unsmoothed loss."""

# N = packed tokens, M = told tokens, D = width
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..data.documents.opening import open_documents
from ..data.documents.tokeniser import CLS, MASK, SEP
from ..data.parallel.opening import open_corpus
from ..data.parallel.vocabulary import EOS, SPECIAL_TOKENS
from ..errors import UserError
from ..model import EncoderDecoder, LanguageModel, Layout, MaskedEncoder
from ..runs.run import AnyRun, LoadedRun, LoadedTextRun
from .forms import Model

_ROWS, _LONGEST = 16, 64
_EVERY = 7
"""One token in seven is hidden: about the 15 % of BERT's training."""

Tell = Callable[[Any], tuple[Tensor, Tensor, Tensor]]
"""Model -> hidden states (N, D), logits (M, V) and targets (M,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What becomes of the outputs when one model takes another's place."""

    text: str
    hidden_change: float
    """‖new - old‖ / ‖old‖ of all hidden states that leave the (last) stack."""
    nll_before: float
    """Mean negative log-likelihood of the told tokens, in nats."""
    nll_after: float
    nll_uniform: float
    """Of a guess among all tokens."""

    def line(self) -> str:
        """For the user."""
        return (
            f"measured on {self.text}: hidden states change by {self.hidden_change:.3g} of their length, the loss goes "
            f"from {self.nll_before:.3f} to {self.nll_after:.3f} nats a token (a uniform guess: {self.nll_uniform:.3f})"
        )


def effect(run: AnyRun, old: Model, new: Model) -> Effect:
    """On validation text of the run where its corpus can be reached and is still that of its vocabulary; otherwise on
    random tokens, which show how hidden states change and nothing of the loss."""
    text, tell = _sentences(run)
    with torch.inference_mode():
        old_hidden, old_logits, targets = tell(old.eval())
        new_hidden, new_logits, _ = tell(new.eval())
    return Effect(
        text=text,
        hidden_change=float((new_hidden - old_hidden).norm() / old_hidden.norm()),
        nll_before=float(functional.cross_entropy(old_logits.float(), targets)),
        nll_after=float(functional.cross_entropy(new_logits.float(), targets)),
        nll_uniform=float(torch.tensor(old_logits.shape[1]).log()),
    )


def _sentences(run: AnyRun) -> tuple[str, Tell]:
    generator = torch.Generator().manual_seed(1)
    if isinstance(run, LoadedRun):
        text, pairs = _pairs(run, generator)
        return text, lambda model: _tell_pairs(model, *pairs)
    longest = min(_LONGEST, run.config.model.positions) - 2
    text, rows = _rows(run, longest, generator)
    ids = run.tokeniser.ids
    if isinstance(run.model, MaskedEncoder):
        return text, lambda model: _tell_masked(model, rows, ids)
    return text, lambda model: _tell_next(model, rows, ids[SEP])


def _pairs(run: LoadedRun, generator: torch.Generator) -> tuple[str, tuple[list[Tensor], list[Tensor]]]:
    sizes = len(run.codec.source.vocabulary), len(run.codec.target.vocabulary)
    try:
        corpus = open_corpus(run.config.data)
        if corpus.codec.vocabulary_digests() == run.codec.vocabulary_digests():
            valid = corpus.splits["valid"]
            numbers = range(min(_ROWS, len(valid)))
            sides = [
                [torch.from_numpy(side[i].astype("int64")) for i in numbers] for side in (valid.source, valid.target)
            ]
            return f"{len(numbers)} validation pairs", (sides[0], sides[1])
    except UserError:
        pass
    first = len(SPECIAL_TOKENS)
    drawn = [
        [torch.cat([torch.randint(first, size, (12,), generator=generator), torch.tensor([EOS])]) for _ in range(_ROWS)]
        for size in sizes
    ]
    return "random tokens (the corpus cannot be reached)", (drawn[0], drawn[1])


def _rows(run: LoadedTextRun, longest: int, generator: torch.Generator) -> tuple[str, list[Tensor]]:
    try:
        corpus = open_documents(run.config.data)
        valid = corpus.splits.get("valid")
        if valid is not None and corpus.tokeniser.to_json() == run.tokeniser.to_json():
            tokens = torch.from_numpy(valid.tokens[: _ROWS * longest].astype("int64"))
            rows = [row for row in torch.split(tokens, longest) if len(row) >= _EVERY]
            if rows:
                return f"{sum(map(len, rows))} tokens of validation text", rows
    except UserError:
        pass
    regular = torch.from_numpy(run.tokeniser.regular_ids)
    rows = [regular[torch.randint(len(regular), (longest,), generator=generator)] for _ in range(_ROWS)]
    return "random tokens (the corpus cannot be reached)", rows


def _tell_pairs(model: EncoderDecoder, sources: list[Tensor], targets: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    memory_layout, layout = _layout(sources), _layout(targets)
    inputs = torch.cat([torch.cat([target[-1:], target[:-1]]) for target in targets])
    hidden_ND = model(torch.cat(sources), memory_layout, inputs, layout)
    return hidden_ND, model.logits(hidden_ND), torch.cat(targets)


def _tell_masked(model: MaskedEncoder, rows: list[Tensor], ids: dict[str, int]) -> tuple[Tensor, Tensor, Tensor]:
    whole = [torch.cat([torch.tensor([ids[CLS]]), row, torch.tensor([ids[SEP]])]) for row in rows]
    tokens_N = torch.cat(whole)
    regular_N = (tokens_N != ids[CLS]) & (tokens_N != ids[SEP])
    masked_M = regular_N.nonzero().squeeze(1)[::_EVERY]
    hidden_ND = model(tokens_N.index_fill(0, masked_M, ids[MASK]), None, _layout(whole))
    return hidden_ND, model.logits(hidden_ND[masked_M]), tokens_N[masked_M]


def _tell_next(model: LanguageModel, rows: list[Tensor], end: int) -> tuple[Tensor, Tensor, Tensor]:
    inputs = [torch.cat([torch.tensor([end]), row[:-1]]) for row in rows]
    hidden_ND = model(torch.cat(inputs), _layout(inputs))
    return hidden_ND, model.logits(hidden_ND), torch.cat(rows)


def _layout(rows: list[Tensor]) -> Layout:
    return Layout(torch.tensor([len(row) for row in rows]))
