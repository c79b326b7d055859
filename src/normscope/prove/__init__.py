"""A model as it is beside one that is known to learn: can it learn at all?"""
