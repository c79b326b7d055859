"""The targets of `normscope doctor`: a factory, a configuration or a checkpoint, made a model."""

from .opening import opened, opened_on_meta
from .target import Target

__all__ = ["Target", "opened", "opened_on_meta"]
