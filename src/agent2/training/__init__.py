"""Reference recipes: `offline` (SFT, DPO), `grpo` and online GRPO on TRL, and a small trainer in plain torch to read.

They are written for agents as much as for us: a recipe takes a folder of weights, rows or games and a settings record,
and leaves a folder of weights and a log. No recipe knows of hidden splits.
"""
