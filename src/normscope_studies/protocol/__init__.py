"""What every study shares: its scales, its pieces, its evidence and its verdicts."""
