"""The rules by subject: each is a generator under `@rule`, and its words stand in rules.toml."""
