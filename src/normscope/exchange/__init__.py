"""Runs that go to other libraries, come from them, or get another placement."""
