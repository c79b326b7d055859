import hashlib

import numpy as np
import pytest

from normscope.data.folder import TokenWriter, open_manifest, token_dtype, write_manifest
from normscope.data.parallel.codec import Codec, CodecSide, TextForm
from normscope.data.parallel.corpus import FORMAT, VERSION, Corpus, TokenArray
from normscope.data.parallel.vocabulary import EOS, UNK, Vocabulary
from normscope.errors import UserError
from tiny import flip, resealed

WORDS = ["ein", "hund", "läuft", ".", "a", "dog", "runs", "'s"]
LINES = {
    "train": (["ein hund läuft.", "ein hund."], ["a dog runs.", "a dog."]),
    "valid": (["hund\u2028läuft", ""], ["Dog's  RUNS \u0085 ok", ""]),
}


def codec(joint=False):
    vocabulary = Vocabulary.of_words(WORDS)
    other = vocabulary if joint else Vocabulary.of_words(WORDS[::-1])
    forms = TextForm("de"), TextForm("en", lowercase=True)
    return Codec(CodecSide(forms[0], vocabulary), CodecSide(forms[1], other), joint=joint)


def write(corpus, folder):
    folder.mkdir()
    for name, split in corpus.splits.items():
        for side in ("source", "target"):
            sentences = getattr(split, side)
            with TokenWriter(folder, f"{name}.{side}", len(WORDS) + 4) as writer:
                for sentence in sentences:
                    writer.append({"tokens": sentence, "lengths": np.array([len(sentence)])})
            if name != "train":
                lines = getattr(split, f"{side}_text")
                (folder / f"{name}.{side}.txt").write_bytes(
                    "".join(line + "\n" for line in lines).encode()
                )
    corpus.codec.save(folder)
    write_manifest(
        folder, format_name=FORMAT, version=VERSION, splits=corpus.splits, preparation={"key": "k"}
    )
    return folder


@pytest.mark.parametrize("joint", [False, True])
def test_a_corpus_in_memory_and_on_the_disk_are_one(tmp_path, joint):
    made = Corpus.of_lines(codec(joint), LINES)
    opened = Corpus.open(write(made, tmp_path / "corpus"))
    assert opened.fingerprint == made.fingerprint
    assert opened.codec.joint == joint
    assert (opened.source.vocabulary is opened.target.vocabulary) == joint
    assert (opened.source.form, opened.target.form) == (
        TextForm("de"),
        TextForm("en", lowercase=True),
    )
    assert (opened.source.form.language, opened.target.form.language) == ("de", "en")
    assert opened.preparation == {"key": "k"}
    assert list(opened.splits) == ["train", "valid"]
    for name, split in opened.splits.items():
        assert len(split) == 2
        for side in ("source", "target"):
            ours, theirs = getattr(split, side), getattr(made.splits[name], side)
            assert [s.tolist() for s in ours] == [s.tolist() for s in theirs]
            assert ours.lengths.tolist() == [len(s) for s in theirs]
    assert opened.splits["valid"].source_text == LINES["valid"][0]
    assert (
        opened.splits["valid"].target_text == made.splits["valid"].target_text == LINES["valid"][1]
    )
    with pytest.raises(ValueError, match="no raw text"):
        _ = opened.splits["train"].source_text


def test_tokens_of_a_corpus_by_hand(tmp_path):
    corpus = Corpus.of_lines(codec(), LINES)
    assert [s.tolist() for s in corpus.splits["train"].source] == [
        [4, 5, 6, 7, EOS],
        [4, 5, 7, EOS],
    ]
    assert [s.tolist() for s in corpus.splits["train"].target] == [
        [7, 6, 5, 8, EOS],
        [7, 6, 8, EOS],
    ]
    assert [s.tolist() for s in corpus.splits["valid"].source] == [[5, 6, EOS], [EOS]]
    assert [s.tolist() for s in corpus.splits["valid"].target] == [[6, 4, 5, UNK, EOS], [EOS]]
    opened = Corpus.open(write(corpus, tmp_path / "corpus"))
    stored = np.fromfile(tmp_path / "corpus/train.source.tokens", dtype="<u2")
    assert stored.tolist() == [4, 5, 6, 7, 2, 4, 5, 7, 2]
    assert isinstance(opened.splits["train"].source.tokens, np.memmap)
    assert opened.splits["train"].source.tokens.dtype == np.uint16


def test_fingerprint_is_of_the_bytes_and_nothing_else(tmp_path):
    base = Corpus.of_lines(codec(), LINES)
    lines = []
    folder = write(base, tmp_path / "corpus")
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.name.endswith((".tokens", ".offsets", "tokenizer.json")):
            lines.append(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n")
    assert len(lines) == 10
    assert base.fingerprint == hashlib.sha256("".join(lines).encode()).hexdigest()
    moved_end = {**LINES, "train": (["ein hund läuft. ein", "hund."], LINES["train"][1])}
    assert Corpus.of_lines(codec(), moved_end).fingerprint != base.fingerprint
    assert Corpus.of_lines(codec(joint=True), LINES).fingerprint != base.fingerprint
    assert Corpus.of_lines(codec(), {"train": LINES["train"]}).fingerprint != base.fingerprint


@pytest.mark.parametrize(
    ("size", "dtype"), [(100, np.uint16), (65535, np.uint16), (65536, np.int32)]
)
def test_token_dtype(size, dtype):
    assert token_dtype(size) == dtype
    sentences = TokenArray.of([[size - 1, EOS]], vocabulary_size=size)
    assert sentences[0].tolist() == [size - 1, EOS]


def test_token_arrays_refuse_what_is_not_theirs():
    sentences = TokenArray.of([[5, EOS], [EOS]], vocabulary_size=10)
    for outside in (-1, 2):
        with pytest.raises(IndexError, match="of 2"):
            sentences[outside]


def names():
    made = Corpus.of_lines(codec(), LINES)
    sides = [f"{name}.{side}" for name in made.splits for side in ("source", "target")]
    return [f"{s}.{kind}" for s in sides for kind in ("tokens", "offsets")] + [
        "valid.source.txt",
        "valid.target.txt",
        "codec.json",
        "source.tokenizer.json",
        "target.tokenizer.json",
        "corpus.json",
    ]


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("harm", ["missing", "bit", "short"])
def test_a_damaged_corpus_is_told(tmp_path, name, harm):
    folder = write(Corpus.of_lines(codec(), LINES), tmp_path / "corpus")
    path = folder / name
    data = path.read_bytes()
    if harm == "missing":
        path.unlink()
    elif harm == "short":
        path.write_bytes(data[: len(data) // 2])
    else:
        place = data.index(b'"fingerprint"') + 20 if name == "corpus.json" else len(data) // 2
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    with pytest.raises(UserError) as told:
        Corpus.open(folder)
    assert str(folder) in str(told.value)
    assert "\n" not in str(told.value)


def test_what_is_no_corpus_is_told(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        Corpus.open(tmp_path / "absent")
    with pytest.raises(UserError, match="not a corpus"):
        Corpus.open(tmp_path)
    folder = write(Corpus.of_lines(codec(), LINES), tmp_path / "corpus")
    resealed(folder / "corpus.json", version=99)
    with pytest.raises(
        UserError, match="has version 99, and this NormScope reads 2; prepare the corpus again"
    ):
        Corpus.open(folder)
    resealed(folder / "corpus.json", version=VERSION, more=1)
    with pytest.raises(
        UserError, match="another version: it has the unknown 'more'; prepare the corpus again"
    ):
        Corpus.open(folder)
    resealed(folder / "corpus.json", more=None, files=None)
    with pytest.raises(
        UserError, match="another version: it lacks 'files'; prepare the corpus again"
    ):
        Corpus.open(folder)


@pytest.mark.parametrize("file", ["corpus.json", "codec.json"])
def test_no_bit_of_a_description_can_change(tmp_path, file, stride):
    folder = write(Corpus.of_lines(codec(), LINES), tmp_path / "corpus")
    read = open_as_a_corpus if file == "corpus.json" else Codec.load
    whole = (folder / file).read_bytes()
    for bit in range(0, 8 * len(whole), 11 * stride):
        flip(folder / file, bit)
        with pytest.raises(UserError, match=file):
            read(folder)
        (folder / file).write_bytes(whole)
    read(folder)


def open_as_a_corpus(folder):
    """Without reading the other files anew, which takes the time."""
    open_manifest(folder, format_name=FORMAT, version=VERSION, made_by="a command")


@pytest.mark.parametrize("joint", [False, True])
def test_a_codec_translates_without_its_corpus(tmp_path, joint):
    corpus = Corpus.of_lines(codec(joint), LINES)
    corpus.codec.save(tmp_path)
    loaded = Codec.load(tmp_path)
    assert loaded.joint == joint
    encoded = loaded.source.encode(["ein hund läuft.", ""])
    assert [ids.tolist() for ids in encoded] == [[4, 5, 6, 7, EOS], [EOS]]
    assert all(ids.dtype == np.int64 for ids in encoded)
    target = corpus.target.encode(["a dog's runs."])[0]
    assert loaded.decode_target_tokenised(target) == "a dog 's runs ."
    assert loaded.decode_target(target) == "a dog's runs."


@pytest.mark.parametrize("name", ["codec.json", "source.tokenizer.json", "target.tokenizer.json"])
def test_a_damaged_codec_is_told(tmp_path, name):
    codec().save(tmp_path)
    data = (tmp_path / name).read_bytes()
    if name == "codec.json":
        (tmp_path / name).write_bytes(data.replace(b'"tokenise"', b'"tokenize"'))
    else:
        (tmp_path / name).write_bytes(data.replace(b"hund", b"hunt"))
    with pytest.raises(UserError, match="damaged"):
        Codec.load(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(UserError, match=name):
        Codec.load(tmp_path)
