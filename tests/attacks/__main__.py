"""`python tests/attacks [KIND…]`: run the attacks of `kinds.toml`, and print how many of each kind
were answered as they must be. Exit code 1 where one was not.
"""

import argparse
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
KINDS = tomllib.loads(Path(__file__).with_name("kinds.toml").read_text(encoding="utf-8"))


def counted(report: Path) -> Counter[str]:
    """How many cases of a report of pytest's were answered, skipped, and not answered."""
    found = Counter[str]()
    for case in ET.parse(report).iter("testcase"):
        ends = {part.tag for part in case}
        if ends & {"failure", "error"}:
            found["wrong"] += 1
        else:
            found["skipped" if "skipped" in ends else "answered"] += 1
    return found


def attacked(tests: list[str], report: Path) -> Counter[str]:
    """Runs the tests of a kind. Raises RuntimeError where pytest itself did not end well."""
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}", *tests]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, check=False)
    if not report.is_file() or done.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {done.returncode}")
    return counted(report)


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[[], *KINDS], metavar="KIND")
    names = parser.parse_args().kinds or list(KINDS)
    with tempfile.TemporaryDirectory() as folder:
        counts = {
            name: attacked(KINDS[name]["tests"], Path(folder) / f"{name}.xml") for name in names
        }
    width = max(map(len, names))
    for name, found in counts.items():
        numbers = f"{found['answered']:>6} answered, {found['wrong']:>3} not"
        left = f", {found['skipped']} skipped" if found["skipped"] else ""
        print(f"{name:<{width}} {numbers}{left}: {KINDS[name]['what']}")
    return int(any(found["wrong"] for found in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
