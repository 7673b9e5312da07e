"""Checkpoints, the samplers that draw from them, and the recipe of the tiny base models."""
