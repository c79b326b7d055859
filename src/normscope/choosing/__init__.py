"""What is known for a model one wants to train: evidence of ours and of others, ranked by how near
it comes.
"""
