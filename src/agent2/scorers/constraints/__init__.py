"""Verifiable instructions after IFEval: 25 published instruction types, their classes, and the scorer over them.

`instructions` is the table of types, `keywords`, `lengths`, `formats` and `languages` check them, `text` says what a
word and a sentence is, `scorer` judges rollouts.
"""
