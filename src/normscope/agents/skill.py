"""The skill file for agents: when to ask NormScope, and how. Data of the package."""

from importlib.resources import files


def skill() -> str:
    """Returns the whole file, with its head of name and description."""
    return (files(__package__) / "SKILL.md").read_text(encoding="utf-8")


def instructions() -> str:
    """Returns the file without its head."""
    _, _, body = skill().split("---\n", 2)
    return body.strip()
