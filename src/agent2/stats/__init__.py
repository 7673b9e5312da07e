"""Statistics of scores: metrics, estimates with intervals, paired comparisons. Knows nothing of models or cards."""
