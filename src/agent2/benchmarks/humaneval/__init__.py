"""HumanEval and MBPP: published functions to write, judged by running them."""
