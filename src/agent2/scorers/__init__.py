"""Verdicts on rollouts, each with a reason; `rational` compares numbers exactly."""
