"""Statistics of the probe: intervals by betting, better or worse, human ratings as a correction."""
