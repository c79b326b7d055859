"""The command line: one file a verb, and the console that shows progress."""
