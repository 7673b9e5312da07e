"""Playing items with a sampler: the rollout engine and the runner that turns an evaluation plan into a card."""
