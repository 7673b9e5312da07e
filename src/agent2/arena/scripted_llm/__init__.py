"""A scripted LLM server: plays an LLM from a script, in the four wire protocols that agent systems speak.

For tests of agents, gateway and replay without any provider. It answers by counting, never by thinking.
"""
