"""Watching a training run: logs in many shapes, danger signals, gates, and a callback that acts on them."""
