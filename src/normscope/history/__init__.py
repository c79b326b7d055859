"""The reading of a training's log: when a spike or a plateau began, where, and which known pattern
it has.
"""
