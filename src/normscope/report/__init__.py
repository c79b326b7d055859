"""Pictures and the HTML page of a comparison; plain values in, files out, nothing of the other rooms needed."""

from .comparison.contents import Arm, Comparison, Curve, GradientProfile, SeedResult, Status
from .comparison.page import render, write
from .comparison.plots import curves_svg, gradient_svg, schedule_svg
from .lines import styles_for

__all__ = [
    "Arm",
    "Comparison",
    "Curve",
    "GradientProfile",
    "SeedResult",
    "Status",
    "curves_svg",
    "gradient_svg",
    "render",
    "schedule_svg",
    "styles_for",
    "write",
]
