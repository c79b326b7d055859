"""What a model computes: the operations of one forward pass, and norms and means over depth among
them.
"""
