"""The ends of placements that are trained until little is gained."""
