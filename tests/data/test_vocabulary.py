import os
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer

from normscope.data.parallel.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from normscope.errors import UserError
from words import learned_from

TEXT = [
    "der kleine hund läuft über die straße .",
    "die kleine katze schläft auf der straße .",
    "der hund schläft , die katze läuft .",
    "ein kleiner hund und eine kleine katze .",
] * 3


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return learned_from(TEXT, 64)


def test_special_ids_are_those_of_fairseq(vocabulary):
    stored = Tokenizer.from_str(vocabulary.to_json())
    assert [stored.token_to_id(token) for token in ("<s>", "<pad>", "</s>", "<unk>")] == [
        0,
        1,
        2,
        3,
    ]
    assert (BOS, PAD, EOS, UNK) == (0, 1, 2, 3)
    assert len(vocabulary) == stored.get_vocab_size() == 64


def test_merges_equal_those_of_a_plain_implementation():
    """Most frequent pair first, by counting from scratch after each merge; ties excluded by the
    choice of text.
    """
    words = {"aab": 7, "ab": 5, "abc": 3}
    pieces = {word: [*word[:-1], word[-1] + "</w>"] for word in words}
    alphabet = ["a", "b", "c", "b</w>", "c</w>"]
    merged = []
    for _ in range(2):
        counts = {}
        for word, count in words.items():
            for pair in zip(pieces[word], pieces[word][1:], strict=False):
                counts[pair] = counts.get(pair, 0) + count
        best = max(counts, key=counts.get)
        assert list(counts.values()).count(counts[best]) == 1
        merged.append("".join(best))
        for symbols in pieces.values():
            i = 0
            while i < len(symbols) - 1:
                if (symbols[i], symbols[i + 1]) == best:
                    symbols[i : i + 2] = ["".join(best)]
                i += 1
    text = [" ".join([word] * count) for word, count in words.items()]
    learned = learned_from(text, 4 + len(alphabet) + 2)
    stored = Tokenizer.from_str(learned.to_json())
    assert [stored.id_to_token(i) for i in range(4, len(learned))] == alphabet + merged
    assert [stored.id_to_token(i) for i in learned.encode("aab ab abc")] == [
        s for w in words for s in pieces[w]
    ]


def test_the_same_bytes_in_every_process_and_with_any_number_of_threads(shared):
    script = (
        "import collections, gzip, hashlib, sys; from normscope.data.parallel.vocabulary import "
        "Vocabulary\n"
        "lines = gzip.open(sys.argv[1], 'rt', encoding='utf-8').read().split('\\n')[:4000]\n"
        "counts = collections.Counter(word for line in lines for word in line.split())\n"
        "print(hashlib.sha256(Vocabulary.of_counts(counts, 2000).to_json().encode()).hexdigest())"
    )
    digests = []
    for threads, hash_seed in [("1", "1"), ("2", "2"), ("5", "3")]:
        environment = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", script, str(shared / "data/multi30k_deen/train.de.gz")]
        digests.append(
            subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            ).stdout
        )
    assert len(digests[0]) == 65
    assert len(set(digests)) == 1


@given(
    st.lists(
        st.sampled_from(["der", "die", "hund", "katze", "kleine", "hunde", "straßer"]), max_size=12
    )
)
def test_decode_undoes_encode_for_known_characters(vocabulary, words):
    line = " ".join(words)
    ids = vocabulary.encode(line)
    assert vocabulary.decode([BOS, *ids, EOS, PAD, PAD]) == line
    assert vocabulary.encode_many([line, "der"]) == [ids, vocabulary.encode("der")]
    assert not {BOS, PAD, EOS, UNK}.intersection(ids)


@given(st.text())
def test_no_text_acts_as_a_special_token(vocabulary, line):
    assert not {BOS, PAD, EOS}.intersection(vocabulary.encode(line))


def test_text_that_spells_special_tokens_stays_text():
    spelled = ["<s> </s> <pad> <unk> x<s>x a</w>b"] * 5
    largest = 100
    with pytest.raises(UserError, match=r"at most (\d+) entries") as refused:
        learned_from(spelled, largest)
    largest = int(str(refused.value).split("at most ")[1].split()[0])
    for size in (largest, 20):
        learned = learned_from(spelled, size)
        for line in ["<s>", "</s> <pad>", "<unk>", "x<s>x"]:
            assert not {BOS, PAD, EOS}.intersection(learned.encode(line))
        assert learned.decode(learned.encode("<pad> </s>")) == "<pad> </s>"


def test_merges_that_spell_a_special_token_do_not_act_as_it():
    learned = learned_from(["<s>a <s>b <s>c <s>d <pad>a <pad>b </s>c </s>d"] * 3, 30)
    stored = Tokenizer.from_str(learned.to_json())
    assert BOS in stored.encode("<s>ad").ids  # what the library alone would say
    for line in ["<s>ad", "<s>a", "</s>c", "<pad>b"]:
        assert not {BOS, PAD, EOS}.intersection(learned.encode(line))
        assert learned.encode_many([line]) == [learned.encode(line)]


def test_unknown_characters_become_unk_and_end_a_word(vocabulary):
    ids = vocabulary.encode("der ☃ hund")
    assert ids.count(UNK) == 1
    assert vocabulary.decode(ids) == "der <unk> hund"


def test_largest_and_smallest_sizes_that_are_told_are_right():
    with pytest.raises(UserError, match="more than this text allows") as too_large:
        learned_from(TEXT, 5000)
    largest = int(str(too_large.value).split("at most ")[1].split()[0])
    assert len(learned_from(TEXT, largest)) == largest
    with pytest.raises(UserError, match="too small") as too_small:
        learned_from(TEXT, 5)
    smallest = int(str(too_small.value).split("alone are ")[1].split(";")[0])
    assert len(learned_from(TEXT, smallest)) == smallest
    with pytest.raises(UserError):
        learned_from(TEXT, smallest - 1)


def test_text_without_words_is_refused():
    with pytest.raises(UserError, match="more than this text allows"):
        learned_from(["", "  "], 10)


def test_save_and_load(vocabulary, tmp_path):
    vocabulary.save(tmp_path / "tokenizer.json")
    loaded = Vocabulary.load(tmp_path / "tokenizer.json")
    assert (
        loaded.to_json()
        == vocabulary.to_json()
        == (tmp_path / "tokenizer.json").read_text(encoding="utf-8")
    )
    assert loaded.encode(TEXT[0]) == vocabulary.encode(TEXT[0])
    assert loaded.decode(loaded.encode(TEXT[0])) == TEXT[0]


@pytest.mark.parametrize("content", [None, "", "{}", "[1, 2]", "nonsense"])
def test_a_missing_or_damaged_file_is_told(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        Vocabulary.load(path)


def test_words_have_ids_in_the_order_given(tmp_path):
    words = ["zeta", "alpha", "mid"]
    vocabulary = Vocabulary.of_words(words)
    assert vocabulary.encode("alpha zeta mid other <pad>") == [5, 4, 6, UNK, UNK]
    assert vocabulary.decode([5, 4, EOS, PAD]) == "alpha zeta"
    assert len(vocabulary) == 7
    vocabulary.save(tmp_path / "tokenizer.json")
    loaded = Vocabulary.load(tmp_path / "tokenizer.json")
    assert loaded.encode("mid alpha") == [6, 5]
    assert loaded.decode([6, 5]) == "mid alpha"


@pytest.mark.parametrize("wrong", [-1, 64])
def test_ids_outside_are_refused(vocabulary, wrong):
    with pytest.raises(IndexError, match="outside the vocabulary of 64"):
        vocabulary.decode([5, wrong])
