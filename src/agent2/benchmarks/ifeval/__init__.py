"""IFEval: published prompts whose instructions a program verifies."""
