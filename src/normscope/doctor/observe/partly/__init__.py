"""Observations on parts that not all of a model goes through, or that no loss trains: choices among
experts, hidden units, states along a sequence, products that nobody reads.
"""
