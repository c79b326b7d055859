"""Small runs of every task, what is made of them, and their exports."""

from collections.abc import Callable
from pathlib import Path

from . import texts
from .answers import Desk
from .recording import Items

_LENGTH = (
    "train.threads=1",
    'train.device="cpu"',
    "train.accumulation=2",
    "train.duration=12",
    "train.validate_every=5",
    "train.checkpoint_every=4",
    "train.keep_checkpoints=2",
)
_PAIRS = (
    *_LENGTH,
    "model.width=16",
    "model.ffn_width=24",
    "model.heads=2",
    "model.encoder_blocks=2",
    "model.decoder_blocks=1",
    'data.corpus="corpus"',
    "data.max_tokens=256",
)
_TEXT = (
    *_LENGTH,
    "model.width=16",
    "model.ffn_width=24",
    "model.heads=2",
    "model.blocks=2",
    "model.positions=32",
    'data.corpus="corpus"',
    "data.sequence_length=24",
    "data.batch_sequences=4",
)

_TRANSLATIONS: dict[str, tuple[str, ...]] = {
    "post-ln": ('model.placement="post-ln"',),
    "pre-ln-label": (
        'model.placement="pre-ln"',
        "model.dropout=0.0",
        'optimizer.name="adamw"',
        "schedule.warmup_updates=4",
    ),
    "admin": ('model.placement="admin"',),
    "ngpt-muon": ('model.placement="ngpt"', 'optimizer.name="muon"'),
    "branch-norm": ('model.placement="branch-norm"', 'optimizer.name="radam"'),
    "mhc-lion": ('model.placement="mhc"', 'optimizer.name="lion"', 'schedule.decay="cosine"'),
    "deepnorm-sgd": ('model.placement="deepnorm"', 'optimizer.name="sgd"', 'model.norm="rms-norm"'),
}
_LANGUAGE: dict[str, tuple[str, ...]] = {
    "language-model": ('task="language-model"', 'model.placement="pre-ln"'),
    "masked-lm": ('task="masked-lm"', 'model.placement="post-ln"'),
    "language-model-peri": (
        'task="language-model"',
        'model.placement="peri-ln"',
        'optimizer.name="adamw"',
        'model.activation="swiglu"',
    ),
}


def runs(tree: Path) -> Items:
    """Of each task: weights, metrics, scores and samples; a comparison."""
    _warm()
    return {
        **{
            f"translation-{name}": _translation(settings)
            for name, settings in _TRANSLATIONS.items()
        },
        "toy": _toy,
        **{name: _text(settings) for name, settings in _LANGUAGE.items()},
        "resumed": _resumed,
        "compare": _compare,
    }


def exports(tree: Path) -> Items:
    """Every form, of a run that fits it."""
    _warm()
    pairs = {"marian": "post-ln", "m2m100": "pre-ln", "ctranslate2": "pre-ln"}
    encoders = {"bert": "post-ln", "roberta-prelayernorm": "pre-ln"}
    presets = {"llama": "llama", "olmo2": "olmo-2", "qwen3": "qwen-3", "gemma2": "gemma-2"}
    return {
        **{
            form: _exported(form, "translation", (f'model.placement="{name}"',))
            for form, name in pairs.items()
        },
        **{
            form: _exported(form, "masked-lm", (f'model.placement="{name}"',))
            for form, name in encoders.items()
        },
        "gpt2": _exported(
            "gpt2", "language-model", ('model.placement="pre-ln"', 'model.activation="gelu"')
        ),
        **{
            form: _exported(form, "language-model", (f'model.preset="{name}"',))
            for form, name in presets.items()
        },
    }


def _warm() -> None:
    """Have imported what the verbs import late, before they are forked."""
    import normscope

    assert all((normscope.train, normscope.compare, normscope.load_run, normscope.diagnose))


def sets(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def _parallel_corpus(desk: Desk) -> None:
    texts.parallel(Path(), train=300, valid=20, test=20)
    words = (
        "--train",
        "train.de",
        "train.en",
        "--valid",
        "valid.de",
        "valid.en",
        "--test",
        "test.de",
        "test.en",
    )
    desk.said(
        "corpus",
        "data",
        "prepare",
        "corpus",
        *words,
        "--languages",
        "de",
        "en",
        "--vocabulary-size",
        120,
    )


def _documents_corpus(desk: Desk) -> None:
    texts.documents(Path(), train=200, valid=10, test=10)
    words = (
        "--train",
        "train.txt",
        "--valid",
        "valid.txt",
        "--test",
        "test.txt",
        "--vocabulary-size",
        420,
    )
    desk.said("corpus", "data", "documents", "corpus", *words, "--tokeniser", "bpe")


def _run(desk: Desk, name: str, *settings: str) -> None:
    """Train it into the folder of that name, and record all that lies there."""
    desk.said(f"{name}-said", "train", "--run", name, *sets(*settings))
    _folder(desk, name)


def _folder(desk: Desk, name: str) -> None:
    top = Path(name)
    desk.bytes_of(name, (path for path in top.rglob("*") if path.is_file()), top)


def _translation(settings: tuple[str, ...]) -> Callable[[Desk], None]:
    def item(desk: Desk) -> None:
        _parallel_corpus(desk)
        _run(desk, "run", *_PAIRS, *settings)
        desk.said("scores", "evaluate", "run", "--split", "valid")
        desk.said("translated", "translate", "run", stdin="ein hund läuft .\ndie katze schläft .\n")

    return item


def _toy(desk: Desk) -> None:
    """On the embedded language, of which nothing is prepared."""
    _run(desk, "run", *_PAIRS, 'data.corpus="toy"', "data.toy_pairs=300")


def _text(settings: tuple[str, ...]) -> Callable[[Desk], None]:
    def item(desk: Desk) -> None:
        _documents_corpus(desk)
        _run(desk, "run", *_TEXT, *settings)
        desk.said("scores", "evaluate", "run", "--split", "valid")
        if 'task="language-model"' in settings:
            desk.said(
                "generated", "generate", "run", "--seed", 3, "--tokens", 12, "--prompt", "The dog"
            )

    return item


def _resumed(desk: Desk) -> None:
    """From an older checkpoint, after which later ones are made again."""
    _parallel_corpus(desk)
    _run(desk, "run", *_PAIRS, "train.keep_checkpoints=5")
    desk.said("again", "train", "run/config.toml", "--run", "run", "--from-step", 4)
    _folder(desk, "run")


def _compare(desk: Desk) -> None:
    _parallel_corpus(desk)
    words = (
        "--placements",
        "post-ln,pre-ln",
        "--warmup-updates",
        "0,4",
        "--seeds",
        2,
        "--peak-lr",
        0.03,
        "--out",
        "grid",
    )
    desk.said("said", "compare", *words, "--evaluate", "valid", "--processes", 2, *sets(*_PAIRS))
    desk.page("report", Path("grid/report.html"))
    _folder(desk, "grid")


def _exported(form: str, task: str, settings: tuple[str, ...]) -> Callable[[Desk], None]:
    def item(desk: Desk) -> None:
        prepare, own = (
            (_parallel_corpus, _PAIRS) if task == "translation" else (_documents_corpus, _TEXT)
        )
        prepare(desk)
        desk.said(
            "run-said",
            "train",
            "--run",
            "run",
            *sets(*own, "train.duration=3", f'task="{task}"', *settings),
        )
        desk.said("said", "export", "run", "out", "--format", form)
        _folder(desk, "out")

    return item
