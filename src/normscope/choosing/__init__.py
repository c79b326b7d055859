"""The knowledge about a model one wants to train: our evidence and that of others, ranked by how
near it comes.
"""
