"""The LLM gateway: a process between the agent and the provider that holds the keys, counts, and records.

Start it with `control.Gateway.start(settings)`; read what it recorded with `read.read_exchanges(folder)`.
"""
