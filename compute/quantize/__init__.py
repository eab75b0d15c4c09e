"""Fewer bits for weights, activations and the KV cache.

    grid.py      numbers on a grid: integers and short floating-point formats with scales; what they take, bit by bit
    schemes.py   the ways to quantize a model that the course compares, by name
    kv.py        keys and values in 8 or 4 bits: a cache, and its effect on a whole text (torch)
    model.py     a model under a scheme (torch); the rest is NumPy, as pages use it too
"""
