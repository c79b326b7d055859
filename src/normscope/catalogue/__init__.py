"""The catalogue of every registered placement, read from its formula: a table, details, a page of
the manual.
"""
