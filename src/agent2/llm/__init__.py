"""Conversations with LLMs: the served sampler, the gateway between an agent and its provider, and a scripted LLM."""
