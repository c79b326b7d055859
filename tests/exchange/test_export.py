"""Our models opened by other libraries: the same outputs from the same weights, and what is
refused.
"""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from normscope.data.parallel.vocabulary import SPECIAL_TOKENS
from normscope.errors import UserError
from normscope.exchange import libraries
from normscope.exchange.export import FORMS, chosen, export
from normscope.exchange.forms import wiring
from normscope.model import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoder,
    LanguageModel,
    Layout,
    MaskedEncoder,
    ModelConfig as TranslationModel,
)
from normscope.placement import Placement, StackShape, named
from normscope.tasks.words import Words, of_decoder, of_encoder
from stacks import CLOSE, perturbed
from words import word_tokeniser

pytestmark = pytest.mark.sampled(one_in=3)

transformers = pytest.importorskip("transformers", reason="needs Hugging Face transformers")

VOCABULARY = 35
WORDS = ("the", "cat", "dog", "sleep", "##s", "and", ".", "a", *(f"w{i}" for i in range(22)))
SIZES = {"width": 12, "ffn_width": 20, "heads": 3}
SOURCE_LENGTHS, LENGTHS = [4, 7, 1], [5, 2, 6]
TEXT_IDS = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
OTHER_TEXT_IDS = {"[CLS]": 0, "[PAD]": 1, "[SEP]": 2, "[UNK]": 3, "[MASK]": 34}
"""As RoBERTa numbers them."""


def words(special: dict[str, int]) -> Words:
    tokens = [f"w{i}" for i in range(VOCABULARY)]
    return Words(ids=special, source=tokens, target=tokens, files={"tokenizer.json": "{}"})


PAIR_WORDS = words({token: i for i, token in enumerate(SPECIAL_TOKENS)})


def translation(placement: str, **changes: object) -> EncoderDecoder:
    sizes = {"encoder_blocks": 2, "decoder_blocks": 3, **SIZES}
    model = EncoderDecoder(
        TranslationModel(**{"placement": placement, **sizes, **changes}), VOCABULARY, VOCABULARY
    )
    return perturbed(model, 1).float().eval()


def encoder(placement: str, **changes: object) -> MaskedEncoder:
    config = EncoderConfig(
        **{"placement": placement, "blocks": 2, "positions": 16, **SIZES, **changes}
    )
    return perturbed(MaskedEncoder(config, VOCABULARY), 1).float().eval()


def decoder(placement: str, **changes: object) -> LanguageModel:
    config = DecoderConfig(
        **{"placement": placement, "blocks": 2, "positions": 16, **SIZES, **changes}
    )
    return perturbed(LanguageModel(config, VOCABULARY), 1).float().eval()


def str_or_kind(value: object) -> str:
    return (
        f"{type(value).__name__}-{value.config.placement}"
        if isinstance(value, torch.nn.Module)
        else str(value)
    )


def grid(lengths: list[int], pad: int, seed: int) -> tuple[Layout, Tensor]:
    """Regular ids (5 to 33), right-padded."""
    layout = Layout(torch.tensor(lengths))
    ids = torch.randint(
        5, 34, (layout.sentences, layout.longest), generator=torch.Generator().manual_seed(seed)
    )
    return layout, ids.masked_fill(~layout.keep_BT, pad)


def opened(folder: Path, name: str) -> torch.nn.Module:
    """In float64, so that nothing but the formula can differ."""
    return getattr(transformers, name).from_pretrained(folder, dtype=torch.float64).eval()


@pytest.mark.parametrize(
    ("form", "name", "model"),
    [
        ("marian", "MarianMTModel", ("post-ln", {})),
        ("marian", "MarianMTModel", ("post-ln", {"embeddings": "separate"})),
        ("marian", "MarianMTModel", ("ds-init", {"encoder_blocks": 1})),
        ("m2m100", "M2M100ForConditionalGeneration", ("pre-ln", {})),
        ("m2m100", "M2M100ForConditionalGeneration", ("gpt2", {"decoder_blocks": 1})),
    ],
)
def test_an_encoder_decoder(form, name, model, tmp_path):
    ours = translation(model[0], **model[1])
    difference = export(ours, PAIR_WORDS, tmp_path / "out", FORMS[form])
    source_layout, source_BT = grid(SOURCE_LENGTHS, 1, 2)
    layout, target_BT = grid(LENGTHS, 1, 3)
    with torch.no_grad():
        logits = opened(tmp_path / "out", name)(
            input_ids=source_BT,
            attention_mask=source_layout.keep_BT.long(),
            decoder_input_ids=target_BT,
        ).logits
        model = ours.double()
        hidden = model(source_layout.pack(source_BT), source_layout, layout.pack(target_BT), layout)
        torch.testing.assert_close(layout.pack(logits), model.logits(hidden), **CLOSE)
    assert difference < 1e-5
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize(
    ("form", "base", "placement", "changes"),
    [
        ("bert", "BertModel", "post-ln", {}),
        ("bert", "BertModel", "post-ln", {"norm_epsilon": 1e-12, "blocks": 3}),
        ("roberta-prelayernorm", "RobertaPreLayerNormModel", "pre-ln", {}),
        ("roberta-prelayernorm", "RobertaPreLayerNormModel", "pre-ln", {"activation": "gelu-tanh"}),
        (
            "roberta-prelayernorm",
            "RobertaPreLayerNormModel",
            "gpt2",
            {"activation": "relu", "norm_epsilon": 1e-3},
        ),
    ],
)
@pytest.mark.parametrize("ids", [TEXT_IDS, OTHER_TEXT_IDS])
def test_an_encoder(form, base, placement, changes, ids, tmp_path):
    ours = encoder(placement, **changes)
    difference = export(ours, words(ids), tmp_path / "out", FORMS[form])
    layout, ids_BT = grid(LENGTHS, ids["[PAD]"], 2)
    segments_BT = torch.randint(2, ids_BT.shape, generator=torch.Generator().manual_seed(4))
    given = {
        "input_ids": ids_BT,
        "attention_mask": layout.keep_BT.long(),
        "token_type_ids": segments_BT,
    }
    model = ours.double()
    with torch.no_grad():
        hidden = model(layout.pack(ids_BT), layout.pack(segments_BT), layout)
        theirs = opened(tmp_path / "out", base)(**given)
        torch.testing.assert_close(layout.pack(theirs.last_hidden_state), hidden, **CLOSE)
        torch.testing.assert_close(theirs.pooler_output, model.pooled(hidden, layout), **CLOSE)
        # What transformers fine-tunes: a classifier drawn anew above the same stack.
        tuned = opened(tmp_path / "out", "AutoModelForSequenceClassification").base_model(**given)
        torch.testing.assert_close(layout.pack(tuned.last_hidden_state), hidden, **CLOSE)
        headed = opened(
            tmp_path / "out",
            json.loads((tmp_path / "out/config.json").read_text())["architectures"][0],
        )
        output = headed(**given)
        logits = output.prediction_logits if form == "bert" else output.logits
        torch.testing.assert_close(layout.pack(logits), model.logits(hidden), **CLOSE)
        if form == "bert":
            judged = model.next_sentence(model.pooled(hidden, layout))
            torch.testing.assert_close(output.seq_relationship_logits, judged, **CLOSE)
    assert difference < 1e-5
    assert FORMS[form].left_out == (
        () if form == "bert" else ("next_sentence.weight", "next_sentence.bias")
    )


def test_the_tokeniser_of_an_encoder_makes_pairs_as_bert_s_does(tmp_path: Path) -> None:
    ours = word_tokeniser(*WORDS)
    export(encoder("post-ln", activation="gelu"), of_encoder(ours), tmp_path / "out", FORMS["bert"])
    theirs = transformers.BertTokenizer(vocab={token: i for i, token in enumerate(ours.tokens)})
    made, pair = (
        transformers.AutoTokenizer.from_pretrained(tmp_path / "out"),
        ("A cat sleeps.", "the dog and zebra"),
    )
    for name in ("input_ids", "token_type_ids", "attention_mask"):
        assert made(*pair)[name] == theirs(*pair)[name]
    assert (made.pad_token_id, made.mask_token) == (0, "[MASK]")


def test_the_tokeniser_of_a_decoder_adds_nothing(tmp_path: Path) -> None:
    ours = word_tokeniser(*WORDS)
    export(decoder("pre-ln", activation="gelu"), of_decoder(ours), tmp_path / "out", FORMS["gpt2"])
    made = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert made("the cat sleeps")["input_ids"] == ours.encode_many(["the cat sleeps"])[0]
    assert (made.bos_token, made.eos_token, made.pad_token) == ("[SEP]", "[SEP]", "[PAD]")


@pytest.mark.parametrize("activation", ["gelu-tanh", "gelu", "relu"])
def test_a_decoder(activation, tmp_path):
    ours = decoder("gpt2", activation=activation, norm_epsilon=1e-3)
    difference = export(ours, words(TEXT_IDS), tmp_path / "out", FORMS["gpt2"])
    layout, ids_BT = grid(LENGTHS, 0, 2)
    with torch.no_grad():
        logits = opened(tmp_path / "out", "GPT2LMHeadModel")(
            ids_BT, attention_mask=layout.keep_BT.long()
        ).logits
        model = ours.double()
        torch.testing.assert_close(
            layout.pack(logits),
            model.logits(model(layout.pack(ids_BT), layout)),
            rtol=1e-10,
            atol=1e-9,
        )
    assert difference < 1e-5


class TestWhatFits:
    @pytest.mark.parametrize(
        ("model", "form"),
        [
            (translation("post-ln"), "marian"),
            (translation("pre-ln"), "m2m100"),
            (translation("pre-ln", embeddings="separate"), "ctranslate2"),
            (encoder("post-ln"), "bert"),
            (encoder("pre-ln"), "roberta-prelayernorm"),
            (decoder("pre-ln"), "gpt2"),
        ],
        ids=str_or_kind,
    )
    def test_the_first_that_does_is_taken(self, model, form):
        assert chosen(None, model).name == form

    def test_by_formula_not_by_name(self):
        """MixLN normalises the first quarter of its blocks after the sum: of two blocks none, of
        eight two.
        """
        assert "mix-ln" in FORMS["gpt2"].placements(decoder("mix-ln", blocks=2))
        assert "mix-ln" not in FORMS["gpt2"].placements(decoder("mix-ln", blocks=8))
        shape = StackShape(kind="encoder", width=4, encoder_blocks=3)
        different = [
            wiring(named(name)(shape))
            for name in ("post-ln", "pre-ln", "deepnorm", "residual", "sandwich")
        ]
        assert len(set(different)) == len(different)
        assert wiring(named("gpt2")(shape)) == wiring(named("pre-ln")(shape))

    def test_formulas_that_differ_in_one_number_name_or_operation_differ(self):
        shape = StackShape(kind="encoder", width=4, encoder_blocks=2)

        def joined(join):
            return wiring(type("Joined", (Placement,), {"join": join})(shape))

        found = [
            joined(lambda self, x, f, norm: norm(x + 2 * f(x))),
            joined(lambda self, x, f, norm: norm(x + 3 * f(x))),
            joined(lambda self, x, f, norm: norm(x - 2 * f(x))),
            joined(lambda self, x, f, norm: norm.other(x + 2 * f(x))),
        ]
        assert len(set(found)) == 4
        assert joined(lambda self, x, f, norm: norm(x + 2 * f(x))) == found[0]

    def test_what_expressions_share_is_written_once(self):
        """A decoder's block of mHC, whose streams each hold all streams before them, would be 58 MB
        written out.
        """
        shape = StackShape(kind="decoder", width=4, encoder_blocks=1, decoder_blocks=1)
        assert len(repr(wiring(named("mhc")(shape)))) < 100_000

    @pytest.mark.parametrize(
        ("model", "form", "message"),
        [
            (
                translation("deepnorm"),
                None,
                "no other library .* 'deepnorm'.* marian: .*post-ln; m2m100: gpt2, .*pre-ln",
            ),
            (encoder("post-ln", norm="rms-norm"), None, "no other library .* norm 'rms-norm'"),
            (
                translation("pre-ln"),
                "marian",
                "MarianMTModel does not compute placement 'pre-ln'; .* post-ln$",
            ),
            (
                translation("pre-ln", norm="rms-norm"),
                "m2m100",
                "LayerNorm alone, and this model has RMSNorm",
            ),
            (
                translation("pre-ln", embeddings="separate"),
                "m2m100",
                "one table .* marian and ctranslate2 hold two",
            ),
            (
                encoder("post-ln", activation="relu"),
                "bert",
                "activation = gelu alone, and this model has 'relu'",
            ),
            (
                encoder("post-ln", activation="swiglu"),
                "bert",
                "activation = gelu alone, and this model has 'swiglu'",
            ),
            (
                encoder("post-ln"),
                "gpt2",
                "gpt2 holds a decoder alone .*, and this run is an encoder",
            ),
            (
                decoder("pre-ln"),
                "onnx",
                "unknown format 'onnx'; choose one of bert, .*, ctranslate2",
            ),
        ],
        ids=str_or_kind,
    )
    def test_what_is_refused(self, model, form, message, tmp_path):
        with pytest.raises(UserError, match=message):
            export(model, PAIR_WORDS, tmp_path / "out", chosen(form, model))
        assert list(tmp_path.iterdir()) == []


class TestTheFolder:
    def test_what_stands_there_stays(self, tmp_path):
        (tmp_path / "mine").write_text("thesis")
        with pytest.raises(UserError, match="and stays: move it away, or choose another place"):
            export(decoder("pre-ln"), words(TEXT_IDS), tmp_path, FORMS["gpt2"])
        assert [p.name for p in tmp_path.iterdir()] == ["mine"]

    def test_whole_or_not_at_all(self, tmp_path, monkeypatch):
        def missing():
            raise UserError("this format takes CTranslate2")

        monkeypatch.setattr(libraries, "_ctranslate2", missing)
        with pytest.raises(UserError, match="takes CTranslate2"):
            export(translation("pre-ln"), PAIR_WORDS, tmp_path / "out", FORMS["ctranslate2"])
        assert list(tmp_path.iterdir()) == []

    def test_a_wrong_weight_is_seen_by_the_difference(self, tmp_path):
        """What an export reports is measured on what it wrote, not on what it meant to write."""
        from safetensors.torch import load_file, save_file

        model, form, ours = decoder("pre-ln"), FORMS["gpt2"], words(TEXT_IDS)
        export(model, ours, tmp_path / "out", form)
        file = tmp_path / "out/model.safetensors"
        tensors = load_file(file)
        tensors["transformer.h.1.attn.c_attn.bias"][0] += 0.1
        save_file(tensors, file, metadata={"format": "pt"})
        assert form.difference(model, tmp_path / "out", ours) > 1e-4
