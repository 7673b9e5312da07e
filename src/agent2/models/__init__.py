"""Checkpoints, the samplers that draw from them, and the recipe of the tiny base models.

Where to find what (a module imports only from those before it in its line):

A folder of weights, read without loading or running it: `tensors`, `layout`, `checkpoint`; then `prepare`
merges an adapter and refuses NaN, with torch.

The hf sampler: `hf` is the queue, start reading there. `loading` loads a model and refuses one that slots
cannot serve; `slots`, `passes`, `traced` are the key-value cache, the forward passes over it and a faster
step for few rows; `draws`, `rows` are the randomness of a request and the bookkeeping of the running ones.

The fake sampler: `scripted`. The tiny base models: `tiny_recipe` (no torch), `tiny`.
"""
