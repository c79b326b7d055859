"""The pre-trained run that a fine-tuning starts from: its configuration, tokeniser and weights at one checkpoint."""

from dataclasses import asdict, dataclass
from pathlib import Path

from ...data.documents.tokeniser import TextTokeniser
from ...data.lines import file_sha256
from ...errors import UserError
from ...model import EncoderConfig, MaskedEncoder
from ...settings.own_files import run_imports
from ...train import RunFolder
from ...train.checkpoint import Checkpoint
from ..masked_lm import MASKED_LM, MaskedRunConfig
from .config import PairRunConfig, StartConfig

_FREE = ("dropout", "attention_dropout", "activation_dropout", "activation_checkpointing")
"""What a fine-tuning may choose otherwise than the pre-training did: nothing that the weights were learned with."""


@dataclass(frozen=True, slots=True)
class Start:
    """A checkpoint of a masked-lm run, verified."""

    folder: RunFolder
    checkpoint: Checkpoint
    config: MaskedRunConfig
    tokeniser: TextTokeniser

    def section(self) -> StartConfig:
        """What a fine-tuning writes down of it."""
        return StartConfig(
            run=str(self.folder.path.resolve()),
            update=self.checkpoint.update,
            weights_sha256=file_sha256(self.checkpoint.folder / "model.safetensors"),
        )

    def encoder(self) -> MaskedEncoder:
        """The pre-trained model, on the CPU; takes from torch's generator. Raises UserError for a damaged file."""
        model = MaskedEncoder(self.config.model, len(self.tokeniser))
        self.checkpoint.load_model(model)
        return model


def open_start(run: Path, which: str) -> Start:
    """which: `best`, `last` or an update's number. Raises UserError for what is no masked-lm run, or damaged."""
    folder = RunFolder(run)
    found = folder.checkpoint(which)
    table, source = folder.config_table(), str(folder.config_file)
    task = table.get("task")
    if task != MASKED_LM.name:
        raise UserError(f"{run} is a run of task {task}; fine-tuning starts from one of task {MASKED_LM.name}")
    run_imports(table, source=source)
    config = MASKED_LM.config_of(table, source=source)
    folder.refuse_other_vocabularies()
    return Start(folder, found, config, MASKED_LM.load_codec(folder.vocabularies))


def start_of(config: PairRunConfig) -> Start:
    """What the configuration starts from. Raises UserError as `open_start`, and where it is not as it says."""
    start = open_start(Path(config.start.run), str(config.start.update))
    noted, found = config.start.weights_sha256, start.section().weights_sha256
    if noted and noted != found:
        raise UserError(
            f"{start.checkpoint.folder}: its weights are not those this fine-tuning began from (SHA-256 {noted} then, "
            f"{found} now); start in another folder"
        )
    _refuse_other_model(config.model, start)
    return start


def _refuse_other_model(model: EncoderConfig, start: Start) -> None:
    ours, theirs = asdict(model), asdict(start.config.model)
    for name, value in theirs.items():
        if name not in _FREE and ours[name] != value:
            raise UserError(
                f"model.{name} is {ours[name]!r}, and {value!r} in {start.folder.path}, whose weights this starts "
                "from; give the same [model] section as that run has, but for its dropout"
            )
