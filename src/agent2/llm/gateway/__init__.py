"""The LLM gateway: a process between the agent and the provider that holds the keys, counts, and records."""
