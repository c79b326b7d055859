"""BLEU against sacreBLEU's own entry point and against the formula by hand."""

import math

import pytest
import sacrebleu

from normscope.decode.translate import corpus_bleu, tokenised_bleu4

HYPOTHESES = ["The cat sat, quietly, on the mat.", "I don't know what you mean!", "It rains."]
REFERENCES = ["the cat sat quietly on the mat.", "I do not know what you mean!", "It rains again."]


@pytest.mark.parametrize("lowercase", [True, False])
def test_corpus_bleu_is_sacrebleu(lowercase):
    report = corpus_bleu(HYPOTHESES, REFERENCES, lowercase=lowercase)
    assert (
        report.score == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], lowercase=lowercase).score
    )
    case = "lc" if lowercase else "mixed"
    assert (
        report.signature
        == f"nrefs:1|case:{case}|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    )


def test_what_sacrebleu_thinks_of_the_text_is_not_logged(caplog):
    """It takes a hundred lines that end in a full stop of its own for tokenised, and names an
    option of its own.
    """
    lines = ["A corpus that came tokenised ."] * 120
    sacrebleu.corpus_bleu(lines, [lines])
    assert "force" in caplog.text
    caplog.clear()
    assert corpus_bleu(lines, lines, lowercase=False).score == pytest.approx(100)
    assert caplog.text == ""


def test_case_matters_only_where_it_is_kept():
    upper = [line.upper() for line in REFERENCES]
    assert corpus_bleu(upper, REFERENCES, lowercase=True).score == pytest.approx(100)
    assert corpus_bleu(upper, REFERENCES, lowercase=False).score < 50
    assert tokenised_bleu4(upper, REFERENCES, lowercase=True).score == pytest.approx(100)


def test_tokenised_bleu4_by_hand():
    # 1- to 4-grams of the six words that match: 5 of 6, 3 of 5, 2 of 4, 1 of 3; equal lengths, so
    # no brevity penalty.
    report = tokenised_bleu4(["the cat sat on the mat"], ["the cat sat on a mat"], lowercase=False)
    assert report.score == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25, rel=1e-12)
    assert "tok:none" in report.signature


def test_brevity_by_hand():
    report = tokenised_bleu4(["a b c d e"], ["a b c d e f"], lowercase=False)
    assert report.score == pytest.approx(100 * math.exp(1 - 6 / 5), rel=1e-12)


def test_tokenised_text_is_not_tokenised_again(caplog):
    # 13a would split the comma off; as it stands, "sat," is one word that no reference has.
    joined, split = ["he sat, then left the room ."] * 100, ["he sat , then left the room ."] * 100
    assert tokenised_bleu4(joined, split, lowercase=False).score < 60
    assert corpus_bleu(joined[:9], split[:9], lowercase=False).score == pytest.approx(100)
    tokenised_bleu4(split, split, lowercase=False)
    assert not caplog.records, "sacreBLEU's warning about tokenised periods is for other uses"


@pytest.mark.parametrize(("hypotheses", "references"), [(["a"], []), ([], [])])
def test_unusable_corpora(hypotheses, references):
    with pytest.raises(ValueError, match="give"):
        corpus_bleu(hypotheses, references, lowercase=False)
