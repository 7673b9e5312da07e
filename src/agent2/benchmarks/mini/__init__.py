"""What the six mini benchmarks share: the corpus, drills and weights of their base model `tiny-mini`."""
