"""Exact arithmetic after RandomCalculation: generated expressions, rational answers, hidden splits.

Source of the idea: "Reasoning or Memorization? Unreliable Results of Reinforcement Learning Due to Data
Contamination" (RandomCalculation).
"""
