"""Checkpoints, the samplers that draw from them, and the recipe of the tiny base models.

Where to find what (a module imports only from those before it in its line):

A folder of weights, read without loading or running it: `tensors`, `checkpoint`, `adapters`, which merges one with
torch and peft; nothing else here loads peft.

The hf sampler: `hf` is the queue, start reading there. `loading` loads a model and refuses one that slots cannot serve;
`slots` has the key-value cache, the forward passes over it and the draws; `rows` knows which request runs in which.

Endpoints: `served`. `sources` finds any of them by what a user writes, and has the fake sampler. The
tiny base models: `tiny_recipe` (no torch), `tiny`.
"""
