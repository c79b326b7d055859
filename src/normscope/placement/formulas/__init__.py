"""The formulas, one file a placement. Every module of this folder is imported: to add a placement, add a file."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
