"""GSM8K: published word problems whose final answer must be parseable."""
