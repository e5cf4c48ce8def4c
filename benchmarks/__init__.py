"""Side by side with kubectl: ratios of one run on one machine, never a timed test."""
