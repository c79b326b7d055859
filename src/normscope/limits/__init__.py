"""The limits on files and settings: depth, numbers, sizes and memory, checked before anything is
built; and the seal by which a file of ours is known to be whole.
"""
