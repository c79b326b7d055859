"""The linter's rules by the file that they stand in."""

import importlib
import pkgutil

from normscope.doctor.lint import checks
from normscope.doctor.lint.linter import RULES
from normscope.doctor.lint.rules import Rule

LAST_OF_WIRING = 50
"""Files with places up to here have the rules about wiring, those after them the rules about weights and values."""

PLACES: dict[str, int] = {
    rule.id: file.PLACE
    for found in pkgutil.iter_modules(checks.__path__)
    for file in [importlib.import_module(f"{checks.__name__}.{found.name}")]
    for rule in file.RULES
}
WIRING: dict[str, Rule] = {rule.id: rule for rule in RULES if PLACES[rule.id] <= LAST_OF_WIRING}
VALUES: dict[str, Rule] = {rule.id: rule for rule in RULES if PLACES[rule.id] > LAST_OF_WIRING}
