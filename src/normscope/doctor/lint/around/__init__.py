"""The rules of what stands around the streams, and of the places that sub-layers read and write."""

# ruff: noqa: F401
from . import places
