"""The lists of verbs that `--help` prints: in groups, in an order that a reader can follow, and none of them cut."""

from typing import Any

from typer.core import TyperGroup

VERBS = {
    "Begin here": ("demo",),
    "Look at placements and models": ("placements", "choose", "predict", "doctor"),
    "Train and compare": ("data", "train", "compare", "tune", "watch", "report"),
    "Use what was trained": ("evaluate", "translate", "generate", "finetune"),
    "To and from other libraries, and other placements": ("export", "import", "convert-placement"),
    "Measure what the paper claims": ("study",),
}
"""Every verb that is shown, in order; a test holds that none is missing."""


class WholeLines(TyperGroup):
    """A list of verbs whose first sentences are wrapped and not cut."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs, each with the first sentence of its help."""
        shown = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        for title, names in self.sections(shown).items():
            with formatter.section(title):
                formatter.write_dl([(name, _first_sentence(self.commands[name].help or "")) for name in names])

    def sections(self, shown: list[str]) -> dict[str, list[str]]:
        """Headings with the verbs below them."""
        return {"Verbs": shown}


class Verbs(WholeLines):
    """The verbs of `normscope` itself."""

    def sections(self, shown: list[str]) -> dict[str, list[str]]:
        return {title: list(names) for title, names in VERBS.items()}


def _first_sentence(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split()).removesuffix(".")
