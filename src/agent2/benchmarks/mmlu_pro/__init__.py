"""MMLU-Pro: published questions with up to ten options."""
