"""What is seen of parts that not all of a model goes through, or that no loss teaches: choices
among experts, hidden units, states along a sequence, products that nobody reads.
"""
