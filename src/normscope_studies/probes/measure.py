"""The reading of linear probes from the encoder of a run, trained or as it was drawn."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from normscope.adapters.scikit_learn import LinearProbe, linear_probe
from normscope.measure import depth_points, recording
from normscope.model import EncoderDecoder, Layout
from normscope.runs.config import load_run_config
from normscope.runs.trained import load_run
from normscope.tasks.translation import TRANSLATION
from normscope.train import RunFolder

from .words import NONE, Classes, control, probe_sentences, properties

# N = words of all sentences, end to end; D = width; L = blocks

_HELD_OUT = 3
"""The interval of sentences that are held out from the probes."""
UNCONTROLLED = "word"
"""The property that the word alone decides: a control task of it would be the same task."""


def probed(run: Path, *, trained: bool, sentences: int, frequent: int) -> dict[str, Any]:
    """Returns by property what probes read from a run's encoder, on words that they were not fitted
    to, by completed blocks.

    accuracy: of a probe at each depth, (L + 1,). carried: of the probe of the depth before, which
    is not fitted again, (L,). control: of a probe on the property's control task, (L + 1,); None
    of the word itself. majority: the share of the commonest class. words: how many were asked.
    trained: False for the weights that the run began with.
    """
    words = probe_sentences(sentences)
    model, ids = _model(run, words, trained=trained)
    streams = _streams(model, ids)
    spoken = [word for sentence in words for word in (*sentence, "")]
    held_out_N = np.repeat(
        [number % _HELD_OUT == 0 for number in range(len(words))],
        [len(sentence) + 1 for sentence in words],
    )
    return {
        name: _read(streams, classes_N, spoken, held_out_N, controlled=name != UNCONTROLLED)
        for name, classes_N in properties(words, frequent).items()
    }


def _model(
    run: Path, words: Sequence[Sequence[str]], *, trained: bool
) -> tuple[EncoderDecoder, list[NDArray[np.int64]]]:
    """Returns the model in evaluation mode, and the ids of the sentences, a word each and an
    end.
    """
    config: Any = load_run_config(RunFolder(run))
    codec = TRANSLATION.open(config).codec
    ids = codec.source.encode([" ".join(sentence) for sentence in words])
    lengths = [len(sentence) + 1 for sentence in words]
    if [len(one) for one in ids] != lengths:
        raise ValueError("a word of the toy language must be one token")
    if trained:
        loaded = load_run(run, which="last", of_task=TRANSLATION, device="cpu")
        return loaded.model, ids
    model: EncoderDecoder = TRANSLATION.build(config, codec).eval()
    return model, ids


@torch.no_grad()
def _streams(model: EncoderDecoder, ids: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float64]]:
    """Returns the encoder's stream by completed blocks, each (N, D), as a norm without gain reads
    it: of size 1 in every placement, so that a probe of one depth can be asked of another.
    """
    stack = model.encoder
    layout = Layout(torch.tensor([len(one) for one in ids]))
    points = depth_points(stack.blocks, pick=stack.placement.hidden)
    with recording(points, _normed) as found:
        model.encode(torch.from_numpy(np.concatenate(ids)), layout)
    return [found[name][0].double().numpy() for name in points]


def _normed(x_ND: Tensor) -> Tensor:
    return functional.layer_norm(x_ND, x_ND.shape[-1:])


def _read(
    streams: Sequence[NDArray[np.float64]],
    classes_N: Classes,
    words_N: Sequence[str],
    held_out_N: NDArray[np.bool_],
    *,
    controlled: bool,
) -> dict[str, Any]:
    asked = classes_N != NONE
    fitted, held = asked & ~held_out_N, asked & held_out_N
    probes = [linear_probe(x_ND[fitted], classes_N[fitted]) for x_ND in streams]

    def accuracy(probe: LinearProbe, depth: int) -> float:
        return probe.accuracy(streams[depth][held], classes_N[held])

    counts = np.bincount(classes_N[held])
    found: dict[str, Any] = {
        "accuracy": [accuracy(probe, depth) for depth, probe in enumerate(probes)],
        "carried": [accuracy(probe, depth) for depth, probe in enumerate(probes[:-1], 1)],
        "control": None,
        "majority": float(counts.max() / counts.sum()),
        "words": int(asked.sum()),
    }
    if controlled:
        other_N = control(classes_N, words_N)
        found["control"] = [
            linear_probe(x_ND[fitted], other_N[fitted]).accuracy(x_ND[held], other_N[held])
            for x_ND in streams
        ]
    return found
