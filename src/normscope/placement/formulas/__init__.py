"""The formulas, one file a family: placements that change the same thing of a block.

In the order in which they are best read: `pre_and_post`, `scaled_skips`, `scaled_branches`,
`around_the_branch`, `inside_the_branch`, `without_layer_norm`, `scheduled`, `two_streams`,
`momentum`, `hyper_connections`, `means_over_depth`. Every module of this folder is imported: to
add a placement, add a class to its family's file, or a file.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
