"""What NormScope does on a CUDA device, beside its peers: `make gpu`, or `python -m gpu` with this
folder's parent.

`part.py` has what all parts share: arms that are measured in turn, kept as they are, and never
measured twice. `timing.py` measures a step, a product and a profile. Each other file is a part, or
a family of them; `systems/` holds the models of NormScope and of the libraries beside it that a
training step is measured of.
"""
