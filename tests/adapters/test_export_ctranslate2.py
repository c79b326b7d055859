"""CTranslate2 beside our own beam search, on a model that was trained: the same translations with the same scores."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from normscope.adapters.export import FORMS, export
from normscope.adapters.export_words import of_codec
from normscope.data.preparation import PrepareConfig
from normscope.data.prepare import prepare
from normscope.data.toy import toy_pairs
from normscope.decode import BeamConfig, beam_search, translate_lines
from normscope.run import LoadedRun, load_run, train_run
from tiny import tiny

ctranslate2 = pytest.importorskip("ctranslate2", reason="needs CTranslate2 (the `ctranslate2` extra)")

UPDATES = 160
"""Enough for sentences that begin like their translations and end; hypotheses still differ from beam to beam."""
LONGEST = 60
FREE = {"max_length_ratio": 0.0, "max_length_extra": LONGEST, "min_length": 0}
"""Limits that both know: CTranslate2 has one for all sentences, and forbids an early end before the softmax, not after
it."""


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return [german for german, _ in toy_pairs(40, seed=5, split="test")]


@pytest.fixture(scope="module", params=[("post-ln", "joint"), ("pre-ln", "separate")], ids="-".join)
def served(request, tmp_path_factory) -> tuple[LoadedRun, Path]:
    """A run over byte-pair encoded text, and its export."""
    placement, vocabularies = request.param
    folder = tmp_path_factory.mktemp("served")
    splits = {}
    for split, count in (("train", 800), ("valid", 20)):
        splits[split] = folder / f"{split}.de", folder / f"{split}.en"
        pairs = toy_pairs(count, seed=5, split=split)
        for side, file in enumerate(splits[split]):
            file.write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    joint = vocabularies == "joint"
    config = PrepareConfig(
        out=folder / "corpus",
        source_language="de",
        target_language="en",
        splits=splits,
        vocabulary_size=300,
        joint=joint,
    )
    prepare(config)
    sizes = ("model.width=32", "model.ffn_width=64", "model.heads=4", "model.dropout=0.0", "data.max_tokens=600")
    rate = ("optimizer.peak_lr=1e-2", "schedule.warmup_updates=30")
    length = [f"train.{name}={UPDATES}" for name in ("duration", "validate_every", "checkpoint_every")]
    tables = f'model.embeddings="{"shared" if joint else "separate"}"'
    settings = (f'data.corpus="{folder / "corpus"}"', f'model.placement="{placement}"', tables)
    train_run(tiny(*settings, *sizes, *rate, *length), folder / "run")
    run = load_run(folder / "run", device="cpu")
    report = export(run.model, of_codec(run.codec), folder / "out", FORMS["ctranslate2"])
    assert report.difference < 1e-4
    return run, folder / "out"


def translator(folder: Path) -> "ctranslate2.Translator":
    return ctranslate2.Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)


def source_tokens(folder: Path, run: LoadedRun, lines: list[str]) -> list[list[str]]:
    """By the exported tokeniser alone, which ends a sentence itself as CTranslate2 does."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return [tokenizer.encode(run.codec.source.form.prepare(line)).tokens[:-1] for line in lines]


@pytest.mark.parametrize("length_penalty", [1.0, 0.6])
@pytest.mark.parametrize("beam", [1, 4])
def test_the_same_translations_with_the_same_scores(served, lines, beam, length_penalty):
    run, folder = served
    config = BeamConfig(beam=beam, length_penalty=length_penalty, **FREE)
    ours = beam_search(run.model, [torch.from_numpy(ids) for ids in run.codec.encode_source(lines)], config)
    theirs = translator(folder).translate_batch(
        source_tokens(folder, run, lines),
        beam_size=beam,
        length_penalty=length_penalty,
        max_decoding_length=LONGEST,
        min_decoding_length=0,
        return_scores=True,
    )
    tokens, compared = of_codec(run.codec).target, 0
    for (our, *_), their in zip(ours, theirs, strict=True):
        # At the limit we make every hypothesis end, and CTranslate2 leaves it without an end. Of the worse hypotheses
        # the two keep others, where more of them end at one step than are wanted.
        if len(their.hypotheses[0]) == LONGEST:
            continue
        compared += 1
        assert [tokens[i] for i in our.tokens[:-1]] == their.hypotheses[0]
        assert our.score == pytest.approx(their.scores[0], abs=1e-4)
    assert compared >= 30
    assert len({tuple(their.hypotheses[0]) for their in theirs}) > 20, "translations of different sentences differ"


def test_text_in_text_out(served, lines):
    """The folder's own files are enough to make our translations from prepared text."""
    run, folder = served
    found = translator(folder).translate_batch(source_tokens(folder, run, lines), beam_size=5, min_decoding_length=0)
    target = folder / ("tokenizer.json" if run.codec.joint else "target.tokenizer.json")
    tokenizer = Tokenizer.from_file(str(target))
    ids = [[tokenizer.token_to_id(token) for token in result.hypotheses[0]] for result in found]
    ours = [t.tokenised for t in translate_lines(run.model, run.codec, lines, BeamConfig(min_length=0))]
    same = [our == tokenizer.decode(row) for our, row in zip(ours, ids, strict=True)]
    # The others are cut by our limit of 1.2 source lengths and 10, which CTranslate2 does not have.
    assert sum(same) >= 36
