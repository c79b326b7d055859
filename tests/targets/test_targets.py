"""What the doctor can be pointed at, beside Hugging Face: factories, our configurations and runs;
what is refused.
"""

import math
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from normscope.data.opening import open_corpus
from normscope.doctor import find_stacks
from normscope.errors import UserError, installation
from normscope.runs.run import train_run
from normscope.runs.trained import load_run
from normscope.settings.tables import to_toml
from normscope.targets import Target, opened
from normscope.tasks.translation import TRANSLATION, TranslationObjective
from tiny import SHORT, tiny

FACTORIES = '''"""Models of a user's."""

import torch
from torch import nn

from models_helper import WIDTH


def encoder(norm_first=True, depth=2, batch_first=True):
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 24, batch_first=batch_first, norm_first=norm_first)
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)

def decoder():
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, 2, 24), 2)

def both():
    return nn.Transformer(WIDTH, 2, 2, 2, 24, batch_first=True)

def mixed():
    return nn.Sequential(encoder(True), encoder(False)), torch.randn(2, 5, WIDTH)

def wrapper(causal=True):
    from x_transformers import Decoder, Encoder, TransformerWrapper
    layers = (Decoder if causal else Encoder)(dim=WIDTH, depth=2, heads=2)
    return TransformerWrapper(num_tokens=30, max_seq_len=6, attn_layers=layers)

def autoregressive():
    from x_transformers import AutoregressiveWrapper
    return AutoregressiveWrapper(wrapper())

def translating():
    from x_transformers import XTransformer
    sizes = dict(enc_depth=2, enc_heads=2, dec_depth=2, dec_heads=2)
    sizes |= dict(enc_max_seq_len=9, dec_max_seq_len=9)
    return XTransformer(dim=WIDTH, enc_num_tokens=30, dec_num_tokens=20, **sizes)

def layers():
    from x_transformers import Encoder
    return Encoder(dim=WIDTH, depth=2, heads=2)

def ours():
    from normscope.model import EncoderDecoder, ModelConfig
    sizes = dict(width=WIDTH, ffn_width=WIDTH, heads=2, encoder_blocks=2, decoder_blocks=2)
    return EncoderDecoder(ModelConfig(placement="deepnorm", **sizes), 30, 30)

def loss(output):
    return output.square().mean()

def pair():
    return encoder(), torch.ones(1, 3, WIDTH)

def triple():
    return encoder(), {"src": torch.ones(1, 3, WIDTH)}, loss

def mapping():
    model = encoder()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return {"model": model, "inputs": [torch.ones(1, 3, WIDTH)], "optimizer": optimizer}

INSTANCE = encoder()

class Own(nn.Module):
    """Not one of the known families."""

def raising():
    return helper()

def helper():
    raise RuntimeError("two\\nlines")

def leaving():
    raise SystemExit("no arguments given")

def number(): return 3
def nothing(): return None
def four(): return 1, 2, 3, 4
def unknown_key(): return {"model": encoder(), "batch": 3}
def no_model(): return {"inputs": 3}
def inputs_of_no_kind(): return encoder(), 3
def loss_of_no_kind(): return encoder(), torch.ones(1, 3, WIDTH), "mse"
def named_optimizer(): return {"model": encoder(), "optimizer": "adamw"}
def optimizer_of_no_kind(): return {"model": encoder(), "optimizer": "ada"}
NUMBER = 3
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("user")
    (folder / "doctored_models.py").write_text(FACTORIES)
    (folder / "models_helper.py").write_text("WIDTH = 16\n")
    (folder / "broken_models.py").write_text("def f(:\n    pass\n")
    (folder / "needy_models.py").write_text("import package_that_nobody_has\n")
    (folder / "bare_models.py").write_text(
        "import sys\nsys.modules['transformers'] = None\nimport transformers\n"
    )
    return folder


@pytest.fixture
def user(folder, monkeypatch) -> Callable[..., Target]:
    """Open a target in the user's folder, whose modules are forgotten afterwards."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def call(
        text: object, *settings: str, tokens: int = 7, sequences: int = 2, seed: int = 0
    ) -> Target:
        return opened(str(text), settings, tokens=tokens, sequences=sequences, seed=seed)

    yield call
    for name in set(sys.modules) - before:
        if "models" in name:
            del sys.modules[name]


@pytest.fixture
def said(user) -> Callable[..., str]:
    def call(text: object, *settings: str, **sizes: int) -> str:
        with pytest.raises(UserError) as error:
            user(text, *settings, **sizes)
        assert "\n" not in str(error.value)
        return str(error.value)

    return call


def output(target: Target) -> object:
    model = target.model.eval()
    if callable(target.inputs):
        return target.inputs(model)
    return model(**target.inputs) if isinstance(target.inputs, dict) else model(*target.inputs)


@pytest.mark.parametrize(
    ("function", "shapes", "placements"),
    [
        ("encoder", [(2, 7, 16)], ["pre-ln"]),
        ("decoder", [(7, 2, 16), (7, 2, 16)], ["post-ln"]),
        ("both", [(2, 7, 16), (2, 7, 16)], ["post-ln", "post-ln"]),
    ],
)
def test_torch_modules_get_inputs_of_their_width_and_order(user, function, shapes, placements):
    target = user(f"doctored_models.py:{function}")
    assert [tuple(x.shape) for x in target.inputs] == shapes
    assert [stack.placement for stack in find_stacks(target.model, target.inputs)] == placements
    assert target.wanted_placement == placements[0]
    assert (target.loss, target.optimizer, target.loading) == (None, None, None)
    assert target.title == f"{type(target.model).__name__} (doctored_models.py:{function})"


def test_settings_are_arguments_of_the_function(user):
    target = user("doctored_models:encoder", "norm_first=false", "depth=3", "batch_first=false")
    assert (len(target.model.layers), target.wanted_placement) == (3, "post-ln")
    assert target.inputs[0].shape == (7, 2, 16)


def test_a_mixture_of_orders_is_no_wanted_placement(user):
    assert user("doctored_models:mixed").wanted_placement is None


def test_a_language_model_of_x_transformers(user):
    pytest.importorskip("x_transformers")
    target = user("doctored_models:wrapper")
    (ids,) = target.inputs
    assert ids.shape == (2, 6)  # as many as it has positions
    logits = output(target)
    by_hand = -logits.log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None]).mean()
    torch.testing.assert_close(target.loss(logits), by_hand)
    assert user("doctored_models:wrapper", "causal=false").loss is None


@pytest.mark.parametrize(
    ("function", "stacks"), [("autoregressive", 1), ("translating", 2), ("layers", 1)]
)
def test_other_models_of_x_transformers(user, function, stacks):
    pytest.importorskip("x_transformers")
    target = user(f"doctored_models:{function}")
    assert [s.placement for s in find_stacks(target.model, target.inputs)] == ["pre-ln"] * stacks
    if function == "layers":
        assert target.loss is None
    else:  # what they return is their loss, near the entropy of 30 or 20 entries
        assert abs(float(target.loss(output(target)).detach()) - 3.2) < 0.7


def test_our_model_gives_logits_and_their_loss(user):
    target = user("doctored_models:ours")
    logits = output(target)
    assert logits.shape == (14, 30)
    assert target.wanted_placement == "deepnorm"
    assert 2.0 < float(target.loss(logits).detach()) < 8.0
    assert {s.placement for s in find_stacks(target.model, target.inputs)} == {"deepnorm"}


def test_what_a_factory_may_return(user):
    pair, triple, mapping = (
        user(f"doctored_models:{name}") for name in ("pair", "triple", "mapping")
    )
    assert torch.equal(pair.inputs, torch.ones(1, 3, 16))
    assert pair.loss is None
    assert float(triple.loss(torch.tensor([1.0, 3.0]))) == 5.0
    assert isinstance(mapping.optimizer, torch.optim.SGD)
    assert mapping.optimizer.param_groups[0]["params"][0] is next(mapping.model.parameters())
    assert isinstance(user("doctored_models:INSTANCE").model, nn.TransformerEncoder)


def test_a_file_with_batches_of_its_own_is_examined_on_them(user, folder):
    (folder / "own_models.py").write_text(
        "import torch\n"
        "class Own(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.proj = torch.nn.Linear(3, 5)\n"
        "    def forward(self, x):\n"
        "        return self.proj(x)\n"
        "def build(): return Own()\n"
        "def paired(): return Own(), torch.ones(1, 3)\n"
        "def judged(): return Own(), torch.ones(1, 3), lambda output: output.sum()\n"
        "def batches(number): return torch.full((2, 3), float(number)), torch.tensor([0, 4])\n"
    )
    target = user("own_models.py:build")
    logits = target.model(torch.zeros(2, 3))
    assert torch.equal(target.inputs(target.model), logits)
    expected = functional.cross_entropy(logits, torch.tensor([0, 4]))
    assert torch.equal(target.loss(logits, target.inputs), expected)
    # Nobody has said a rate or a clip, and inputs that a function gives are what it is examined on.
    assert (target.optimizer, target.clip_norm, target.warmup_updates) == (None, None, None)
    paired = user("own_models.py:paired")
    assert torch.equal(paired.inputs, torch.ones(1, 3))
    # The file says how frequent its targets are, unless it gives a loss that may be any.
    for found in (target, paired):
        assert found.counting().over == "512 target tokens in 256 batches"
        assert found.counting().nats == pytest.approx(math.log(2))
    assert user("own_models.py:judged").counting is None


def test_a_batch_that_the_model_does_not_take_is_told_as_training_tells_it(user, folder):
    (folder / "named_models.py").write_text(
        "import torch\n"
        "class Own(torch.nn.Linear):\n"
        "    def forward(self, x): return super().forward(x)\n"
        "def build(): return Own(3, 5)\n"
        "def batches(number): return {'ids': torch.ones(2, 3)}\n"
    )
    target = user("named_models.py:build")
    with pytest.raises(
        UserError,
        match=r"^\S+named_models\.py: the model raised TypeError: .*keyword argument 'ids'",
    ):
        find_stacks(target.model, target.inputs)


def test_labels_among_the_inputs_make_a_hugging_face_loss(user, folder):
    pytest.importorskip("transformers")
    (folder / "labelled_models.py").write_text(
        "import torch, transformers\n"
        "def make():\n"
        "    config = transformers.GPT2Config(\n"
        "        n_layer=1, n_embd=16, n_head=2, vocab_size=9, bos_token_id=1, eos_token_id=1)\n"
        "    ids = torch.arange(8)[None]\n"
        "    return transformers.GPT2LMHeadModel(config), {'input_ids': ids, 'labels': ids}\n"
    )
    target = user("labelled_models:make")
    found = output(target)
    by_hand = functional.cross_entropy(found.logits[0, :-1], torch.arange(1, 8))
    torch.testing.assert_close(target.loss(found), by_hand)


def test_an_optimiser_may_be_a_name(user):
    assert user("doctored_models:named_optimizer").optimizer == "adamw"


def test_the_seed_is_the_factorys_too(user):
    weights = [
        next(user("doctored_models:encoder", seed=seed).model.parameters()) for seed in (3, 3, 4)
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        ("doctored_models:raising", [], "raised RuntimeError: two lines ("),
        ("doctored_models:leaving", [], "raised SystemExit: no arguments given"),
        ("doctored_models:encodre", [], "no function 'encodre'; did you mean 'encoder'?"),
        ("doctored_models:encoder", ["dept=3"], "has no such argument; did you mean 'depth'?"),
        ("doctored_models:INSTANCE", ["depth=3"], "is a model already"),
        ("doctored_models:NUMBER", [], "is of type int; it must be a function"),
        (
            "doctored_models:number",
            [],
            "returned an object of class int; it must return a model, (model, inputs)",
        ),
        ("doctored_models:nothing", [], "returned None"),
        ("doctored_models:four", [], "returned a tuple of 4"),
        (
            "doctored_models:unknown_key",
            [],
            "unknown key 'batch'; its keys are model, inputs, loss, optimizer, clip_norm, "
            "warmup_updates",
        ),
        ("doctored_models:no_model", [], "no key 'model'"),
        ("doctored_models:inputs_of_no_kind", [], "class int as inputs; it must be a tensor"),
        ("doctored_models:loss_of_no_kind", [], "class str as loss; it must be a function"),
        (
            "doctored_models:optimizer_of_no_kind",
            [],
            "class str as optimizer; it must be a torch.optim.Optimizer",
        ),
        ("doctored_models:Own", [], "no sample inputs are known for Own: give them, a tensor"),
        (
            "doctored_models.py",
            [],
            "is no target: give package.module:function or file.py:function",
        ),
        ("doctored_models.py:", [], "name the function too"),
        ("broken_models:f", [], "SyntaxError"),
        ("needy_models:f", [], "ModuleNotFoundError: No module named 'package_that_nobody_has'"),
        ("no_such_models:f", [], "no module 'no_such_models'"),
        ("no_such_models.py:f", [], "no such file: no_such_models.py"),
        ("not a module:f", [], "is no module"),
        ("missing.toml", [], "no such file or folder: missing.toml"),
        ("./missing", [], "no such file or folder: ./missing"),
        ("doctored_models.encoder", [], "is no target: give package.module:function"),
        (".", [], "neither a config.json (Hugging Face) nor a config.toml (a run)"),
    ],
)
def test_mistakes_are_one_line(said, text, settings, expected):
    assert expected in said(text, *settings)


def test_an_error_in_the_users_code_comes_with_its_innermost_line(said, folder):
    line = FACTORIES.splitlines().index('    raise RuntimeError("two\\nlines")') + 1
    assert said("doctored_models:raising").endswith(
        f"({folder / 'doctored_models.py'}, line {line})"
    )
    assert f"({folder / 'broken_models.py'}, line 1)" in said("broken_models:f")
    assert f"({folder / 'needy_models.py'}, line 1)" in said("needy_models.py:f")


def test_a_library_that_an_extra_brings_is_named_with_the_command_that_installs_it(
    said, monkeypatch
):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert said("bare_models.py:f").endswith(f", line 3): {installation('huggingface')}")


def test_sizes_that_are_none(said):
    assert "--tokens must be at least 2" in said("doctored_models:encoder", tokens=1)
    assert "--sequences at least 1" in said("doctored_models:encoder", sequences=0)
    assert "--seed must be 0 or more" in said("doctored_models:encoder", seed=-1)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "short"
    train_run(tiny(*SHORT), folder)
    return folder


def assert_first_batch(target: Target, model: nn.Module, config: object) -> None:
    """Its loss is that of the run's task, which is computed without logits, on the first batch."""
    corpus, device = open_corpus(config.data), torch.device("cpu")
    task = TranslationObjective(
        corpus,
        config.translation,
        max_tokens=config.data.max_tokens,
        seed=config.seed,
        device=device,
    )
    batch = task.micro_batch(0)
    expected = task.loss_sums(model.eval(), batch)[0] / batch.target_tokens
    torch.testing.assert_close(
        target.loss(output(target), target.inputs), expected, rtol=1e-5, atol=1e-6
    )


def test_a_configuration_of_ours(user, tmp_path):
    config = tiny(
        "model.placement=sandwich",
        "optimizer.name=sgd",
        "optimizer.peak_lr=0.5",
        "schedule.warmup_updates=7",
    )
    file = tmp_path / "mine.toml"
    file.write_text(to_toml(config))
    target = user(file, "seed=4", "model.decoder_blocks=2")
    assert len(target.model.decoder.blocks) == 2
    assert isinstance(target.optimizer, torch.optim.SGD)
    assert target.optimizer.param_groups[0]["lr"] == 0.5
    assert target.warmup_updates == 7
    assert (target.wanted_placement, target.loading, target.title) == (
        "sandwich",
        None,
        f"EncoderDecoder ({file})",
    )
    changed = tiny("model.placement=sandwich", "seed=4", "model.decoder_blocks=2")
    model = TRANSLATION.build(changed, open_corpus(changed.data).codec)
    assert all(
        torch.equal(a, b)
        for a, b in zip(target.model.parameters(), model.parameters(), strict=True)
    )
    assert_first_batch(target, model, changed)


def test_a_run_of_ours(user, said, run):
    target = user(run)
    loaded = load_run(run, device="cpu")
    assert all(
        torch.equal(a, b)
        for a, b in zip(target.model.parameters(), loaded.model.parameters(), strict=True)
    )
    assert (target.loading.missing, target.loading.unexpected) == ((), ())
    assert f"short, update {loaded.update}" in target.title
    assert_first_batch(target, loaded.model, loaded.config)
    assert "is a run, whose configuration is fixed" in said(run, "seed=2")
    # What a model stands at that knows how frequent words are, from the text of its validation.
    tokens = open_corpus(loaded.config.data).splits["valid"].target.tokens
    shares = torch.bincount(torch.as_tensor(tokens).long()).double() / len(tokens)
    assert target.counting().nats == pytest.approx(float(torch.special.entr(shares).sum()))


def test_what_is_wrong_with_a_configuration_is_told(said, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("[model]\nwidht = 3\n")
    assert "did you mean 'model.width'" in said(file)
    (tmp_path / "notes.txt").write_text("hello")
    assert "is no target" in said(tmp_path / "notes.txt")
