"""Checkpoints, samplers, and the recipes of the tiny base models.

Where to find what (a module imports only from those before it in its line):

A folder of weights, read without loading or running it: `checkpoint`. `adapters` merges one with torch and peft;
nothing else here loads peft.

The hf sampler: `hf` is the queue, start reading there. `loading` loads a model and refuses one that slots cannot serve;
`slots` has the key-value cache, the forward passes over it and the sampling of tokens; `rows` knows which request runs
in which slot.

`sources` turns what a user writes into a sampler: the hf one, the scripted one, or that of an endpoint (`llm.served`).
The tiny base models: `tiny_recipe` (no torch), `tiny`.
"""
