"""Multiple choice over a small closed world of facts, the embedded counterpart of MMLU-Pro."""
