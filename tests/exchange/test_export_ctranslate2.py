"""CTranslate2, and `generate` of transformers, beside our own search on a trained model: the same
translations.
"""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from normscope.data.parallel.codec import Codec, CodecSide, TextForm
from normscope.data.parallel.preparation import PrepareConfig
from normscope.data.parallel.prepare import prepare
from normscope.data.parallel.vocabulary import EOS, SPECIAL_TOKENS, Vocabulary
from normscope.data.toy import toy_pairs
from normscope.decode.search import BeamConfig, beam_search
from normscope.decode.translate import translate_lines
from normscope.exchange.export import FORMS, chosen, export
from normscope.runs.run import train_run
from normscope.runs.trained import load_run
from normscope.tasks.protocol import LoadedRun
from normscope.tasks.words import Words, of_codec
from stacks import small_model
from tiny import tiny

pytestmark = pytest.mark.sampled(one_in=6)

ctranslate2 = pytest.importorskip(
    "ctranslate2", reason="needs CTranslate2 (the `ctranslate2` extra)"
)

UPDATES = 160
"""Enough for sentences that begin like their translations and end; hypotheses still differ from
beam to beam.
"""
LONGEST = 60
FREE = {"max_length_ratio": 0.0, "max_length_extra": LONGEST, "min_length": 0}
"""Limits that both know: CTranslate2 has one for all sentences, and forbids an early end before the
softmax, not after it."""


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return [german for german, _ in toy_pairs(40, seed=5, split="test")]


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> tuple[LoadedRun, Path]:
    """A Post-LN run over byte-pair encoded text, and its export."""
    folder = tmp_path_factory.mktemp("served")
    splits = {}
    for split, count in (("train", 800), ("valid", 20)):
        splits[split] = folder / f"{split}.de", folder / f"{split}.en"
        pairs = toy_pairs(count, seed=5, split=split)
        for side, file in enumerate(splits[split]):
            file.write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    config = PrepareConfig(
        out=folder / "corpus",
        source_language="de",
        target_language="en",
        splits=splits,
        vocabulary_size=300,
        joint=True,
    )
    prepare(config)
    sizes = (
        "model.width=32",
        "model.ffn_width=64",
        "model.heads=4",
        "model.dropout=0.0",
        "data.max_tokens=600",
    )
    rate = ("optimizer.peak_lr=1e-2", "schedule.warmup_updates=30")
    length = [
        f"train.{name}={UPDATES}" for name in ("duration", "validate_every", "checkpoint_every")
    ]
    train_run(
        tiny(
            f'data.corpus="{folder / "corpus"}"',
            'model.placement="post-ln"',
            *sizes,
            *rate,
            *length,
        ),
        folder / "run",
    )
    run = load_run(folder / "run", device="cpu")
    difference = export(run.model, of_codec(run.codec), folder / "out", FORMS["ctranslate2"])
    assert difference < 1e-4
    return run, folder / "out"


def translator(folder: Path) -> "ctranslate2.Translator":
    return ctranslate2.Translator(
        str(folder), device="cpu", compute_type="float32", intra_threads=1
    )


def source_tokens(folder: Path, run: LoadedRun, lines: list[str]) -> list[list[str]]:
    """By the exported tokeniser alone, which ends a sentence itself as CTranslate2 does."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return [tokenizer.encode(run.codec.source.form.prepare(line)).tokens[:-1] for line in lines]


@pytest.mark.parametrize("length_penalty", [1.0, 0.6])
@pytest.mark.parametrize("beam", [1, 4])
def test_the_same_translations_with_the_same_scores(served, lines, beam, length_penalty):
    run, folder = served
    config = BeamConfig(beam=beam, length_penalty=length_penalty, **FREE)
    ours = beam_search(
        run.model, [torch.from_numpy(ids) for ids in run.codec.source.encode(lines)], config
    )
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
        # At the limit we make every hypothesis end, and CTranslate2 leaves it without an end. Of
        # the worse hypotheses the two keep others, where more of them end at one step than are
        # wanted.
        if len(their.hypotheses[0]) == LONGEST:
            continue
        compared += 1
        assert [tokens[i] for i in our.tokens[:-1]] == their.hypotheses[0]
        assert our.score == pytest.approx(their.scores[0], abs=1e-4)
    assert compared >= 30
    assert len({tuple(their.hypotheses[0]) for their in theirs}) > 20, (
        "translations of different sentences differ"
    )


def test_text_in_text_out(served, lines):
    """The folder's own files are enough to make our translations from prepared text."""
    run, folder = served
    found = translator(folder).translate_batch(
        source_tokens(folder, run, lines), beam_size=5, min_decoding_length=0
    )
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = [[tokenizer.token_to_id(token) for token in result.hypotheses[0]] for result in found]
    ours = [
        t.tokenised for t in translate_lines(run.model, run.codec, lines, BeamConfig(min_length=0))
    ]
    same = [our == tokenizer.decode(row) for our, row in zip(ours, ids, strict=True)]
    # The others are cut by our limit of 1.2 source lengths and 10, which CTranslate2 does not have.
    assert sum(same) >= 36


def test_transformers_generate_the_same(served, lines, tmp_path):
    """Greedily, from raw prepared text with the exported tokeniser."""
    transformers = pytest.importorskip("transformers", reason="needs Hugging Face transformers")
    run, _ = served
    form = chosen(None, run.model)
    export(run.model, of_codec(run.codec), tmp_path / "out", form)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    prepared = [run.codec.source.form.prepare(line) for line in lines]
    given = tokenizer(prepared, padding=True, return_tensors="pt")
    ids = run.codec.source.encode(lines)
    assert [row[: len(i)].tolist() for row, i in zip(given["input_ids"], ids, strict=True)] == [
        i.tolist() for i in ids
    ]
    model = getattr(transformers, form.opened_by.removeprefix("transformers.")).from_pretrained(
        tmp_path / "out"
    )
    generated = model.generate(**given, num_beams=1, do_sample=False, max_new_tokens=LONGEST)
    ours = beam_search(run.model, [torch.from_numpy(i) for i in ids], BeamConfig(beam=1, **FREE))
    found = [
        row[1 : 1 + len(our.tokens)].tolist()
        for row, (our, *_) in zip(generated, ours, strict=True)
    ]
    ended = [n for n, (our, *_) in enumerate(ours) if len(our.tokens) <= LONGEST]
    assert len(ended) >= 30
    assert [found[n] for n in ended] == [ours[n][0].tokens for n in ended]


@pytest.mark.parametrize("placement", ["pre-ln", "post-ln"])
@pytest.mark.parametrize("embeddings", ["shared", "separate"])
def test_random_weights(placement, embeddings, tmp_path):
    """Greedily, as far as `LONGEST`: such a model seldom ends, and its tokens are none the less
    those we choose.
    """
    model = small_model(placement, embeddings=embeddings).float()
    tokens = [*SPECIAL_TOKENS, *(f"w{i}" for i in range(16))]
    words = Words(
        ids={t: i for i, t in enumerate(SPECIAL_TOKENS)}, source=tokens, target=tokens, files={}
    )
    difference = export(model, words, tmp_path / "out", FORMS["ctranslate2"])
    assert difference < 1e-5
    generator = torch.Generator().manual_seed(3)
    sources = [torch.randint(4, 20, (3 + n % 9,), generator=generator) for n in range(20)]
    ours = beam_search(
        model, [torch.cat([s, torch.tensor([EOS])]) for s in sources], BeamConfig(beam=1, **FREE)
    )
    theirs = translator(tmp_path / "out").translate_batch(
        [[tokens[i] for i in source.tolist()] for source in sources],
        beam_size=1,
        max_decoding_length=LONGEST,
        min_decoding_length=0,
    )
    expected = [[words.target[i] for i in our.tokens[:-1]] for our, *_ in ours]
    assert [result.hypotheses[0] for result in theirs] == expected


def test_two_vocabularies_have_two_files():
    def side(language: str, *words: str) -> CodecSide:
        return CodecSide(
            TextForm(language=language, tokenise=True, lowercase=False), Vocabulary.of_words(words)
        )

    words = of_codec(Codec(side("de", "ein", "hund"), side("en", "a", "dog", "runs")))
    assert words.source == [*SPECIAL_TOKENS, "ein", "hund"]
    assert words.target == [*SPECIAL_TOKENS, "a", "dog", "runs"]
    assert set(words.files) == {"tokenizer.json", "target.tokenizer.json", "tokenizer_config.json"}
    source, target = (
        Tokenizer.from_str(words.files[n]) for n in ("tokenizer.json", "target.tokenizer.json")
    )
    assert source.encode("hund ein katze").tokens == ["hund", "ein", "<unk>", "</s>"]
    assert target.encode("a dog").ids == [4, 5, EOS]
