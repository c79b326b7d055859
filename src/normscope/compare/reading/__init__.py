"""The report of a comparison, read from its run folders: what became of each configuration, and what that says."""
