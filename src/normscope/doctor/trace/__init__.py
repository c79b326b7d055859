"""The computation of a model: the operations of one forward pass, and norms and means over depth
among them.
"""
