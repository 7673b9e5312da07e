"""Inference engines in processes and Python environments of their own, behind the sampler queue."""
