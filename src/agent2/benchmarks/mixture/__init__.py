"""Mixtures of benchmarks."""
