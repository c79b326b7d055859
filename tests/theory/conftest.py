"""A registry that forgets what a test registers."""

import pytest

from normscope.placement import Placement, registry as registry_


@pytest.fixture
def registry(monkeypatch) -> dict[str, type[Placement]]:
    """The registry, restored afterwards."""
    monkeypatch.setattr(registry_, "_REGISTRY", dict(registry_._REGISTRY))
    return registry_._REGISTRY
