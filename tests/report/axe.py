"""Rules of accessibility, as axe-core checks them in a browser. It is npm's package, and no part of
the repository.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from report.devtools import Tab

_ROOT = Path(__file__).parents[2]


def violations(tab: Tab) -> list[Any]:
    """Broken rules, each with the elements that break it; skips the test where axe-core is
    absent.
    """
    places = [os.environ.get("NORMSCOPE_AXE", ""), str(_ROOT / "node_modules/axe-core/axe.min.js")]
    found = next((Path(place) for place in places if place and Path(place).is_file()), None)
    if found is None:
        pytest.skip(
            "needs axe-core: `npm install --no-save axe-core`, or NORMSCOPE_AXE=path/to/axe.min.js"
        )
    tab.js(f"{found.read_text(encoding='utf-8')}\n;0")
    told = "r.violations.map(v => [v.id, v.nodes.map(n => n.html.slice(0, 200))])"
    broken: list[Any] = json.loads(tab.js(f"axe.run().then(r => JSON.stringify({told}))"))
    return broken
