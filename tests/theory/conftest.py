"""A registry that forgets what a test registers."""

import pytest

from normscope.placement import base


@pytest.fixture
def registry(monkeypatch) -> dict[str, type[base.Placement]]:
    """The registry, restored afterwards."""
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))
    return base._REGISTRY
