"""The user's own model under another placement: its forward is followed, and the formula says what
joins and reads.
"""
