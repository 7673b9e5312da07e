"""Fixing a function in a tiny repository, the embedded counterpart of SWE-bench."""
