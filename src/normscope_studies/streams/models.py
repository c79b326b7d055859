"""The two tasks: what is trained on which text, and a feed-forward width that makes the parameters equal."""

from dataclasses import dataclass, field
from typing import Any

from normscope.errors import UserError
from normscope.runs.config import replaced
from normscope.tasks.language_model import LANGUAGE_MODEL
from normscope.tasks.protocol import AnyCorpus, TaskFromScratch
from normscope.tasks.run_config import RunConfig
from normscope.tasks.translation import TRANSLATION

from ..engine.models import language_model_base, translation_base
from .config import StreamsConfig
from .sources import BASE

AnyTask = TaskFromScratch[Any, Any, Any, Any]


@dataclass(slots=True)
class Trial:
    """One task at the study's size."""

    name: str
    task: AnyTask
    base: RunConfig
    """What all runs share; placement, feed-forward width, warm-up, rate and seed are still to be chosen."""
    model: str
    """decoder-only or encoder-decoder."""
    corpus: AnyCorpus
    _counts: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def codec(self) -> Any:
        return self.task.codec_of(self.corpus)

    def parameters(self, placement: str, ffn_width: int) -> int:
        """How many numbers are trained."""
        key = placement, ffn_width
        if key not in self._counts:
            config = replaced(self.base, model__placement=placement, model__ffn_width=ffn_width)
            built = self.task.build(config, self.codec)
            self._counts[key] = sum(p.numel() for p in built.parameters() if p.requires_grad)
        return self._counts[key]

    def equal_ffn_width(self, placement: str) -> int:
        """The feed-forward width at which the model has as many parameters as Pre-LN's, as nearly as can be.

        Raises UserError where the placement's own parameters leave nothing for a feed-forward.
        """
        full: int = self.base.model.ffn_width
        wanted, here = self.parameters(BASE, full), self.parameters(placement, full)
        # The count is a straight line in the width.
        each = here - self.parameters(placement, full - 1)
        width = full - round((here - wanted) / each)
        if width < 1:
            raise UserError(
                f"{placement} has {here - wanted:,} parameters more than {BASE}, and its feed-forward of {full:,} has "
                f"{full * each:,} to take them from: make ffn_width larger, or leave it out of `placements`"
            )
        return width


def trials(config: StreamsConfig) -> dict[str, Trial]:
    """By name. Raises UserError for text that is not there."""
    makers = {"language-model": _language_model, "translation": _translation}
    return {name: makers[name](config) for name in config.tasks}


def _language_model(config: StreamsConfig) -> Trial:
    base = language_model_base(config)
    return Trial("language-model", LANGUAGE_MODEL, base, "decoder-only", LANGUAGE_MODEL.open(base))


def _translation(config: StreamsConfig) -> Trial:
    base = translation_base(config)
    return Trial("translation", TRANSLATION, base, "encoder-decoder", TRANSLATION.open(base))
