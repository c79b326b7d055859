"""What a training's log says: when a spike or a plateau began, where, and which known pattern it
has.
"""
