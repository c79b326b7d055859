"""The checks of studies' settings: each raises ValueError with the setting's name and its value."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from normscope.data.opening import TOY
from normscope.errors import UserError


def check_different(config: object, *names: str) -> None:
    """Refuse settings that are empty, or have a value twice."""
    for name in names:
        values = getattr(config, name)
        if not values or len(set(values)) < len(values):
            raise ValueError(f"{name}: give one or more different values, got {values}")


def check_rising(config: object, *names: str) -> None:
    """Refuse settings whose values are not positive and rising."""
    for name in names:
        values = getattr(config, name)
        if list(values) != sorted(values) or values[0] <= 0:
            raise ValueError(f"{name} must be positive and rise, got {values}")


def check_least(config: object, **least: int) -> None:
    """Refuse numbers below the least that each may be."""
    for name, bound in least.items():
        if (value := getattr(config, name)) < bound:
            raise ValueError(f"{name} must be at least {bound}, got {value}")


def check_positive(config: object, *names: str) -> None:
    """Refuse numbers of 0 or less, and tuples that hold one."""
    for name in names:
        value = getattr(config, name)
        if not min(value if isinstance(value, tuple) else (value,)) > 0:
            raise ValueError(f"{name} must be positive, got {value}")


def check_choices(config: object, name: str, choices: tuple[str, ...]) -> None:
    """Refuse names that are not among the choices."""
    if unknown := sorted(set(getattr(config, name)) - set(choices)):
        raise ValueError(
            f"{name}: {', '.join(unknown)} is not one; choose from {', '.join(choices)}"
        )


def refuse_missing(corpus: str, setting: str, command: str) -> None:
    """Raise UserError where there is no such folder, saying which command makes one and which
    setting names it.
    """
    if corpus != TOY and not Path(corpus).is_dir():
        raise UserError(
            f"no corpus at {corpus!r}: prepare one with `{command}` (docs/studies.md says which), "
            f"and give its folder with --set {setting}=FOLDER (or {setting}={TOY} for the embedded "
            "language)"
        )


def settings_of(config: object, *names: str) -> dict[str, Any]:
    """Settings by their names, for another configuration that has them too."""
    return {name: getattr(config, name) for name in names}


def settings_but(config: Any, *names: str) -> dict[str, Any]:
    """Returns all settings but these, for what a measurement depends on."""
    return {name: value for name, value in asdict(config).items() if name not in names}
