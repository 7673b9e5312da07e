"""Monitoring of training runs: logs in many shapes, danger signals, gates, and a callback that acts on them."""
