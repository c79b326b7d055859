"""The laws: a model is tried, and not only read.

One copy of it is updated, put into both modes, and asked with other inputs; what every model must
do is held against what it does.
"""
