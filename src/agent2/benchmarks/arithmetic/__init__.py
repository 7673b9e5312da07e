"""Exact arithmetic after RandomCalculation: generated expressions, rational answers, hidden splits.

`expressions` generates, `rewards` judges text, `splits` says who may see what, `corpus` is what a tiny
base model is pre-trained on, `benchmark` puts them together. Source of the idea: "Reasoning or
Memorization? Unreliable Results of Reinforcement Learning Due to Data Contamination" (RandomCalculation).
"""
