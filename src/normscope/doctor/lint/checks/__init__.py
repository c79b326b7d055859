"""The rules by subject. A rule is a generator under `@rule`; `linter.RULES` lists all of them in order."""
