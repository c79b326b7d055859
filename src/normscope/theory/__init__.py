"""Numbers in, numbers out: what theory says of norms and gradients at initialisation.

`paper` is Xiong et al. 2020 as printed, `corrected` the same statements as their proofs bear them out. What exists in
both has the same name, so that the two can be shown side by side: `paper.is_bounded` and `corrected.is_bounded`.
"""

from . import corrected, paper

__all__ = ["corrected", "paper"]
