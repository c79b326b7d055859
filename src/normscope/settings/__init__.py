"""Settings that a user gives: TOML files, `--set KEY=VALUE`, and Python files of their own."""
