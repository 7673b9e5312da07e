"""Looks at finished cards and evaluations, and plays nothing."""
