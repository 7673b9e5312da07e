"""Run a program that nobody trusts: bubblewrap by default, limits that are named with their strength."""
