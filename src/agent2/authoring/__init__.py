"""Writing a benchmark of one's own: matrix, task cards, checks, pilot, frozen versions, refresh (`agent2 bench`)."""
