"""Trainings that no rule was fitted to: other placements, initial weights and depths, and Muon."""

from ..advice.cases.families import Families

HELD_OUT: Families = {
    ("decoder", "pieces", "paper"): "post-ln 6x48:adamw; sub-ln 4x48:muon; keel 6x32:adamw; x0-residual 4x48:lion; "
    "lns 8x32:adam",
    ("decoder", "toy", "normal-by-width"): "pre-ln 16x32:adamw; reordered 6x32:adamw; layer-scale 4x64:radam; "
    "scale-norm 4x48:sgd; siamese-norm 4x32:adam",
    ("decoder", "characters", "small-attention"): "admin-constant 6x48:adamw; gpt2 8x48:adamw; mhc 3x32:lion; "
    "post-ln 3x96:adam; normformer 4x48:sgd",
    ("encoder-decoder", "toy", "small-attention"): "post-ln 3x48:adam; olmo-2 3x32:adamw; sub-ln 4x32:lion; "
    "lns 3x48:radam; pre-ln 2x64:sgd",
    ("encoder-decoder", "multi30k", "paper"): "post-ln 3x32:adam; admin-constant 2x48:adamw; keel 2x32:radam; "
    "zaya 3x32:lion; scale-norm 2x48:sgd",
    ("encoder-decoder", "multi30k", "normal-by-width"): "pre-ln 3x48:muon; reordered 2x32:adam; minicpm 2x48:lion; "
    "layer-scale 3x32:adamw",
}
"""As `FAMILIES` of the study of advice: none of these families is one of those, and of the placements
Post-LN and Pre-LN alone are."""
