"""NormScope: what the placement of normalisation does to a Transformer, and whether it needs
learning-rate warm-up.
"""

import sys
from importlib import import_module
from types import ModuleType

__version__ = "0.1.0"

_HOMES = {
    "AdaptiveConfig": "optim",
    "Decoder": "model.padded.stacks",
    "Encoder": "model.padded.stacks",
    "Transformer": "model.padded.stacks",
    "UserError": "errors",
    "attach": "api.training",
    "choose": "api.placements",
    "compare": "api.comparison",
    "compare_runs": "api.comparison",
    "coordinate_check": "api.coordinates",
    "diagnose": "api.models",
    "finetune": "api.finetuning",
    "load_run": "api.runs",
    "open_run": "api.runs",
    "place": "model.padded.place",
    "placements": "api.placements",
    "predict": "api.prediction",
    "profile": "api.training",
    "schedule": "api.training",
    "train": "api.runs",
    "transplant": "api.models",
    "untransplant": "api.models",
}
"""The module in which each public name lives; `__init__.pyi` says the same to type checkers."""
__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    # torch takes seconds to import; `import normscope` alone needs none of it.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        from .errors import UserError, not_installed

        if advice := not_installed(error):
            raise UserError(f"{name}: {advice}") from None
        raise
    room = sys.modules.get(f"{__name__}.{name}")
    if room is None:
        globals()[name] = found
    else:
        # `import normscope.train.loop as x` asks what `train` stands for here, which is the
        # function, for its `loop`.
        vars(found).update(
            {part: value for part, value in vars(room).items() if isinstance(value, ModuleType)}
        )
    return found


def load_ipython_extension(shell: object) -> None:
    """Brings the magics `%doctor` and `%%compare` to IPython: `%load_ext normscope` calls it."""
    import_module(f"{__name__}.api.magics").bring_magics(shell)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


class _Package(ModuleType):
    """`train` is a room of the house as well: as an attribute of the package, the name stands for
    the function.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
