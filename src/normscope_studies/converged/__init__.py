"""Where placements end that are trained until little is gained."""
