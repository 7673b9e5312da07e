"""The arena: one agent, one base model, one budget, one hidden test; and a report of the outcome."""
