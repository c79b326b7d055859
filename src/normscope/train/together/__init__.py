"""Several processes that torchrun has started train one run: their group, what each holds, and how
one that is lost ends the others.
"""
