"""The known patterns, one file each: what speaks for one, and what would have to be recorded to decide."""
