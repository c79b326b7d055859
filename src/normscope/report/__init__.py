"""Pictures and the HTML page of a comparison; plain values in, files out, nothing of the other rooms needed."""

from normscope.report.contents import Arm, Comparison, Curve, GradientProfile, SeedResult, Status
from normscope.report.lines import styles_for
from normscope.report.page import render, write
from normscope.report.plots import curves_svg, gradient_svg, schedule_svg

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
