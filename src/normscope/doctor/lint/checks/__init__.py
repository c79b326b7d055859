"""The rules, one file a family of them. Every file here is found by itself: to add a family, add a file.

A file has `RULES`, a tuple of `Rule`, and `PLACE`, a number: findings of equal severity are listed by the places of
their files, lists of rules too, and within a file as `RULES` has them. Places are ten apart so that a file fits between
two others: first what is wrong with the wiring, then with weights, then with what they compute, then with an optimiser.
"""
