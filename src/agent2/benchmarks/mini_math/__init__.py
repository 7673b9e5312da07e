"""Word problems in one or two steps with a worked answer, the embedded counterpart of GSM8K."""
