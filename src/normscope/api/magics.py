"""IPython and Jupyter: `%load_ext normscope` brings `%doctor` and `%%compare`.

%doctor model, batch, optimizer="sgd"

%%compare placements="pre-ln,post-ln", warmup_updates=[0, 200]
[train]
duration = 400
"""

import tomllib
from typing import Any

from ..errors import UserError, user_errors


def bring_magics(shell: Any) -> None:
    """Register both magics. What stands behind one are arguments, as they are written in Python.

    shell: what holds the names that these arguments use, as `user_ns`, and takes magics by
    `register_magic_function`.
    """

    def called(function: Any, arguments: str, **more: Any) -> Any:
        # A user's own line, evaluated where it was typed.
        return eval(f"_asked({arguments})", {**shell.user_ns, **more, "_asked": function})

    def doctor(line: str) -> Any:
        """`%doctor model` is `normscope.diagnose(model)`, and what more that takes stands behind
        the model.
        """
        from .models import diagnose

        if not line.strip():
            raise UserError(
                "%doctor takes a model, as in %doctor model, and then what normscope.diagnose takes"
            )
        return called(diagnose, line)

    def compare(line: str, cell: str) -> Any:
        """`%%compare` is `normscope.compare` of the configuration that the cell holds in TOML."""
        from .comparison import compare

        with user_errors(
            tomllib.TOMLDecodeError,
            said=lambda error: f"the cell below %%compare is no TOML: {error}",
        ):
            config = tomllib.loads(cell)
        return called(compare, f"_config_of_cell, {line}", _config_of_cell=config)

    shell.register_magic_function(doctor, "line", "doctor")
    shell.register_magic_function(compare, "cell", "compare")
