"""Corpora and recipes of the tiny base models, and their weights: run by maintainers, unpacked by everybody else."""
