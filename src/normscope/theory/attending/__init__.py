"""Attention on moments: of tokens that are alike, and of places with moments of their own.

The equations are T7 to T10, T17 and T21 of docs/theory.md.
"""
