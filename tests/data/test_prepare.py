import errno
import gzip
import resource
from dataclasses import replace

import pytest
import sacremoses

from normscope.data import preparation, work
from normscope.data.folder import TokenWriter
from normscope.data.parallel.corpus import Corpus
from normscope.data.parallel.preparation import PrepareConfig, drop_reason, summary
from normscope.data.parallel.prepare import prepare
from normscope.data.parallel.vocabulary import EOS, Vocabulary
from normscope.errors import UserError
from words import learned_from


def stored(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def read(path):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as stream:
        return stream.read().split("\n")[:-1]


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("joint", [False, True])
def test_what_a_corpus_holds(config, text, joint, listing):
    report = prepare(config(joint=joint, lowercase=True, max_length_ratio=1.4))
    corpus = Corpus.open(report.out)
    assert corpus.fingerprint == report.fingerprint
    assert list(corpus.splits) == ["train", "valid", "test"]
    moses = {"source": sacremoses.MosesTokenizer("de"), "target": sacremoses.MosesTokenizer("en")}
    for name, paths in text.items():
        expected = {
            side: [
                " ".join(moses[side].tokenize(line, escape=False)).lower() for line in read(path)
            ]
            for side, path in zip(("source", "target"), paths, strict=True)
        }
        rows = list(range(len(expected["source"])))
        if name == "train":
            words = [
                [len(expected[side][i].split()) for side in ("source", "target")] for i in rows
            ]
            rows = [i for i in rows if max(words[i]) <= 1.4 * min(words[i])]
            assert 0 < len(rows) < report.counts["read"]["train"] == 1150
            assert report.counts["dropped"] == {"length ratio over 1.4": 1150 - len(rows)}
        for side in ("source", "target"):
            sentences = getattr(corpus.splits[name], side)
            vocabulary = getattr(corpus, side).vocabulary
            assert [vocabulary.decode(ids) for ids in sentences] == [
                expected[side][i] for i in rows
            ]
            assert all(ids[-1] == EOS and EOS not in ids[:-1] for ids in sentences)
        assert report.counts["kept"][name] == len(rows)
        assert report.counts["tokens"][name] == [
            int(getattr(corpus.splits[name], s).lengths.sum()) for s in ("source", "target")
        ]
    assert corpus.splits["test"].source_text == read(text["test"][0])
    assert corpus.splits["valid"].target_text == read(text["valid"][1])
    assert report.counts["vocabulary_sizes"] == [200, 200]
    assert corpus.codec.joint == joint
    assert not any("train" in name and name.endswith(".txt") for name in listing(report.out))


def test_vocabularies_are_learned_on_train_alone(config, text):
    separate = Corpus.open(prepare(config()).out)
    joint = Corpus.open(prepare(config(joint=True)).out)
    german, english = (
        [" ".join(moses.tokenize(line, escape=False)) for line in read(path)]
        for moses, path in zip(
            map(sacremoses.MosesTokenizer, ("de", "en")), text["train"], strict=True
        )
    )
    kept = [
        (g, e)
        for g, e in zip(german, english, strict=True)
        if 2 / 3 <= len(g.split()) / len(e.split()) <= 1.5
    ]
    german, english = (list(side) for side in zip(*kept, strict=True))
    assert separate.source.vocabulary.to_json() == learned_from(german, 200).to_json()
    assert separate.target.vocabulary.to_json() == learned_from(english, 200).to_json()
    assert joint.target.vocabulary.to_json() == learned_from(german + english, 200).to_json()


@pytest.mark.thorough
def test_the_number_of_processes_changes_no_byte(config):
    alone = prepare(config(workers=1))
    files = stored(alone.out)
    several = prepare(config(workers=2, out=alone.out.with_name("several")))
    assert stored(several.out) == files


def test_every_23rd_pair_is_held_out_where_no_validation_is_given(config, text):
    asked = config(splits={"train": text["train"]}, max_length_ratio=100)
    report = prepare(asked)
    corpus = Corpus.open(report.out)
    source, target = (read(path) for path in text["train"])
    assert report.counts["kept"] == {"train": 1100, "valid": 50}
    assert corpus.splits["valid"].source_text == source[22::23]
    assert corpus.splits["valid"].target_text == target[22::23]
    decoded = [
        corpus.source.form.restore(corpus.source.vocabulary.decode(i))
        for i in corpus.splits["train"].source
    ]
    moses = corpus.source.form
    assert decoded == [
        moses.restore(moses.prepare(line)) for i, line in enumerate(source, 1) if i % 23
    ]
    assert report.counts["held_out_every"] == 23
    assert any("every 23rd pair" in line for line in summary(report, asked))


def test_the_summary_says_one_vocabulary_or_two_and_whose_rules_split_the_words(config):
    joint, separate = config(joint=True), config(source_language="nb")
    said, of_two = summary(prepare(joint), joint), summary(prepare(separate), separate)
    assert "joint vocabulary: 200" in said
    assert "vocabularies: 200 source, 200 target" in of_two
    assert [line for line in said + of_two if line.startswith("note")] == [
        "note: Moses has no rules for 'nb', and its English ones were used"
    ]
    assert not any(
        "note" in line for line in summary(prepare(joint), replace(separate, tokenise=False))
    )


@pytest.mark.parametrize(
    ("given", "hint"),
    [("german", "; did you mean 'de'?"), ("DE", "; did you mean 'de'?"), ("d", ""), ("../x", "")],
)
def test_a_language_is_a_code(config, given, hint):
    allowed = "a language is given by its code of two or three small letters, such as de"
    with pytest.raises(UserError) as refused:
        config(target_language=given)
    assert str(refused.value) == f"languages: {allowed}, got {given!r}{hint}"
    assert config(target_language="zh-Hant").languages[1] == "zh-Hant"


def test_empty_lines_stay_in_validation_and_leave_train(config, text):
    for name in ("train", "valid"):
        lines = read(text[name][0])
        lines[3], lines[5] = "", " \u2028\u00a0 "
        data = "".join(line + "\n" for line in lines).encode()
        text[name][0].write_bytes(gzip.compress(data) if name == "train" else data)
    report = prepare(config(splits=text))
    corpus = Corpus.open(report.out)
    assert report.counts["dropped"]["empty"] == 2
    assert report.counts["kept"]["valid"] == 40
    assert (
        corpus.splits["valid"].source[3].tolist()
        == corpus.splits["valid"].source[5].tolist()
        == [EOS]
    )
    assert corpus.splits["valid"].source_text[5] == " \u2028\u00a0 "


@pytest.mark.parametrize(
    ("source_words", "target_words", "reason"),
    [
        (0, 3, "empty"),
        (3, 0, "empty"),
        (1, 2, "under 2 words"),
        (2, 3, None),
        (3, 2, None),
        (2, 4, "length ratio over 1.5"),
        (4, 2, "length ratio over 1.5"),
        (10, 10, None),
        (10, 11, "over 10 words"),
        (11, 10, "over 10 words"),
    ],
)
def test_reasons_to_drop(config, source_words, target_words, reason):
    limits = config(min_tokens=2, max_tokens=10)
    assert drop_reason(" ".join("x" * source_words), " ".join("y" * target_words), limits) == reason


def test_preparing_again_does_nothing(config):
    first = prepare(config())
    before = {path: path.stat().st_mtime_ns for path in [first.out, *first.out.iterdir()]}
    calls = []
    second = prepare(config(workers=2), lambda *progress: calls.append(progress))
    assert replace(second, unchanged=False) == first
    assert second.unchanged
    assert "unchanged" in summary(second, config())[0]
    assert {path: path.stat().st_mtime_ns for path in [first.out, *first.out.iterdir()]} == before
    assert {stage for stage, _, _ in calls} == {"check"}


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("change", ["option", "input", "damage"])
def test_a_changed_preparation_replaces_the_corpus(config, text, change, listing):
    first = prepare(config())
    changes = {}
    if change == "option":
        changes = {"lowercase": True}
    elif change == "input":
        text["test"][0].write_text(text["test"][0].read_text().replace("Hund", "Hand", 1))
    else:
        path = first.out / "train.source.tokens"
        path.write_bytes(path.read_bytes()[:-2])
        with pytest.raises(
            UserError,
            match=f"{path} is not as NormScope wrote it, edited or damaged; remove {path} ",
        ):
            prepare(config())
        path.unlink()
    second = prepare(config(**changes))
    assert not second.unchanged
    assert Corpus.open(second.out).fingerprint == second.fingerprint
    assert (second.fingerprint == first.fingerprint) == (change == "damage")
    assert listing(first.out.parent) == ["corpus"]


def test_a_failed_change_leaves_the_old_corpus(config, text, listing):
    first = prepare(config())
    files = stored(first.out)
    with pytest.raises(UserError, match="more than this text allows"):
        prepare(config(vocabulary_size=100_000))
    assert stored(first.out) == files
    assert listing(first.out.parent) == ["corpus"]


def test_progress_runs_to_the_end_of_each_stage(config):
    calls = []
    prepare(config(), lambda *progress: calls.append(progress))
    stages = list(dict.fromkeys(stage for stage, _, _ in calls))
    assert stages == ["check", "tokenise", "learn", "encode"]
    for stage in stages:
        done = [d for s, d, _ in calls if s == stage]
        totals = {t for s, _, t in calls if s == stage}
        assert done == sorted(done)
        assert totals == {done[-1]}
        assert len(done) >= 3


def bad_inputs():
    def cut(text):
        source = text["train"][0]
        source.write_bytes(gzip.compress("\n".join(read(source)[:1000]).encode() + b"\n"))

    return {
        "train.de.gz has 1,000 lines, but .*train.en.gz has 1,150": cut,
        r"valid\.en: no such file": lambda text: text["valid"][1].unlink(),
        r"test\.de: empty file": lambda text: text["test"][0].write_bytes(b""),
        r"test\.de:2: byte 1 .* is not UTF-8": lambda text: text["test"][0].write_bytes(
            b"a\n\xff\n" + b"x\n" * 38
        ),
        r"test\.en:40: NUL byte": lambda text: text["test"][1].write_bytes(b"x\n" * 39 + b"\0\n"),
        r"train\.en\.gz: .*cut short": lambda text: text["train"][1].write_bytes(
            text["train"][1].read_bytes()[:-100]
        ),
        r"valid\.de:1: line of": lambda text: text["valid"][0].write_bytes(b"x" * 10_000_000),
    }


@pytest.mark.parametrize("message", bad_inputs())
def test_bad_input_is_told_and_leaves_nothing(config, text, message, monkeypatch, listing):
    bad_inputs()[message](text)
    monkeypatch.setattr(work, "in_order", lambda *a, **k: pytest.fail("tokenised before checking"))
    with pytest.raises(UserError, match=message) as told:
        prepare(config())
    assert "\n" not in str(told.value)
    assert listing(config().out.parent) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary_size": 10}, r"source side \(de\): vocabulary size 10 is too small"),
        ({"vocabulary_size": 10, "joint": True}, "^vocabulary size 10 is too small"),
        ({"min_tokens": 100}, "none of the 1,150 training pairs can be kept .*under 100 words"),
    ],
)
def test_what_cannot_be_made_is_told_and_leaves_nothing(config, changes, message, listing):
    with pytest.raises(UserError, match=message):
        prepare(config(**changes))
    assert listing(config().out.parent) == []


def test_too_few_pairs_to_hold_out(config, text, listing):
    for path in text["train"]:
        path.write_bytes(gzip.compress("".join(line + "\n" for line in read(path)[:22]).encode()))
    with pytest.raises(UserError, match=r'too few .* give files for the split "valid"'):
        prepare(config(splits={"train": text["train"]}, max_length_ratio=100))
    assert listing(config().out.parent) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"splits": {"valid": ()}}, '"train" is missing'),
        ({"splits": {"train": (), "../x": ()}}, "letters, digits"),
        ({"source_language": ""}, "two or three small letters"),
        ({"min_tokens": 0}, "min_tokens=0"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens=9"),
        ({"max_length_ratio": 0.5}, "max_length_ratio=0.5"),
        ({"max_length_ratio": float("nan")}, "max_length_ratio=nan"),
        ({"workers": 0}, "workers=0"),
    ],
)
def test_values_that_cannot_be_meant(config, changes, message):
    with pytest.raises(UserError, match=message):
        config(**changes)


def test_what_is_not_a_corpus_is_not_replaced(config, tmp_path):
    out = config().out
    out.mkdir()
    assert prepare(config()).counts["kept"]["valid"] == 40  # an empty folder is filled
    foreign = tmp_path / "place" / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("years of work")
    with pytest.raises(
        UserError, match=r"foreign/thesis.tex was not written by NormScope, and stays"
    ):
        prepare(config(out=foreign))
    with pytest.raises(UserError, match="is a file"):
        prepare(config(out=foreign / "thesis.tex"))
    assert stored(foreign) == {"thesis.tex": b"years of work"}


def test_a_link_is_neither_followed_nor_replaced(config, tmp_path):
    first = prepare(config())
    link = tmp_path / "link"
    link.symlink_to(first.out)
    with pytest.raises(UserError, match=f"link is a link, and stays: .* it leads to {first.out}"):
        prepare(config(out=link, lowercase=True))
    assert link.is_symlink()
    assert not Corpus.open(link).target.form.lowercase


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("place", ["tokenise", "learn", "encode", "manifest"])
@pytest.mark.parametrize(
    "failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_nothing_is_left_when_it_ends_early(config, monkeypatch, place, failure, listing):
    def stop(*args, **kwargs):
        raise failure

    owner, name = {
        "tokenise": (preparation, "write_atomically"),
        "learn": (Vocabulary, "of_counts"),
        "encode": (TokenWriter, "append"),
        "manifest": (preparation, "write_manifest"),
    }[place]
    monkeypatch.setattr(owner, name, stop)
    expected = UserError if isinstance(failure, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as told:
        prepare(config())
    if expected is UserError:
        assert str(config().out.parent) in str(told.value)
        assert "disk is full" in str(told.value)
    assert listing(config().out.parent) == []


def test_a_real_limit_on_file_size(config, listing):
    """The kernel refuses to write past 30 kB: the nearest thing to a full disk that needs no
    disk.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, hard))
    try:
        with pytest.raises(UserError, match="disk is full"):
            prepare(config())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert listing(config().out.parent) == []


@pytest.mark.thorough
def test_iwslt14_as_given(shared, tmp_path):
    """fairseq's validation split: tokenised and lower-cased already, 7,283 lines, 140,433 and
    148,225 words.
    """
    folder = shared / "data" / "iwslt14_deen"
    report = prepare(
        PrepareConfig(
            out=tmp_path / "iwslt14",
            source_language="de",
            target_language="en",
            splits={
                name: (folder / f"{name}.de.gz", folder / f"{name}.en.gz")
                for name in ("train", "valid")
            },
            vocabulary_size=8000,
            tokenise=False,
        )
    )
    assert report.counts["read"] == {"train": 26_820, "valid": 7_283}
    assert report.counts["kept"] == {"train": 26_820, "valid": 7_283}
    assert report.counts["dropped"] == {}
    corpus = Corpus.open(report.out)
    valid = corpus.splits["valid"]
    decoded = [
        [side.vocabulary.decode(ids) for ids in tokens]
        for side, tokens in [(corpus.source, valid.source), (corpus.target, valid.target)]
    ]
    assert sum(len(line.split()) for line in decoded[0]) == 140_433
    for side, raw in zip(decoded, [valid.source_text, valid.target_text], strict=True):
        pairs = [
            (line, given) for line, given in zip(side, raw, strict=True) if "<unk>" not in line
        ]
        assert len(pairs) > 0.99 * 7_283  # the others hold characters that train does not
        assert [line for line, _ in pairs] == [given for _, given in pairs]
    assert corpus.codec.decode_target(valid.target[0]) == valid.target_text[0]


@pytest.mark.thorough
def test_multi30k_as_given(shared, tmp_path):
    folder = shared / "data" / "multi30k_deen"
    report = prepare(
        PrepareConfig(
            out=tmp_path / "multi30k",
            source_language="de",
            target_language="en",
            splits={
                "train": (folder / "train.de.gz", folder / "train.en.gz"),
                "valid": (folder / "valid.de", folder / "valid.en"),
            },
            vocabulary_size=6000,
            joint=True,
            lowercase=True,
        )
    )
    assert report.counts["read"] == {"train": 29_000, "valid": 1_014}
    assert report.counts["kept"]["train"] + sum(report.counts["dropped"].values()) == 29_000
