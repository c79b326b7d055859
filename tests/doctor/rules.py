"""The linter's rules by what they look at."""

from normscope.doctor.lint.linter import RULES
from normscope.doctor.lint.rule import Rule

_WIRING = [rule.id for rule in RULES].index("wrong-constants") + 1
"""The rules about wiring come first; this is the last of them."""
WIRING: dict[str, Rule] = {rule.id: rule for rule in RULES[:_WIRING]}
VALUES: dict[str, Rule] = {rule.id: rule for rule in RULES[_WIRING:]}
"""The rules about weights and values."""
