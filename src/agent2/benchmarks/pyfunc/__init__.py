"""Generated Python functions to write, judged by running them; the embedded sibling of HumanEval."""
