"""Fewer bits for weights, activations and the KV cache.

    grid.py      numbers on a grid: integers and short floating-point formats with scales; what they take, bit by bit
    schemes.py   the ways to quantize a model that the course compares, by name
    kv.py        keys and values in 8 or 4 bits: a cache, and its effect on a whole text (torch)
    gptq.py, awq.py, smooth.py   codes and scales chosen with the help of calibration text
    rescale.py, outliers.py      the same function with other weights: behind AWQ and SmoothQuant; outliers found and planted
    calibration.py, observe.py   the text, and what flows into each matrix while it is read (torch)
    w8a8.py, kernels.py          matrices of integers (torch)
    model.py     a model under a scheme (torch)
    examples.py, matrices.py     a few weights to look at; real rows and whole matrices, added up for a picture
    sent.py      a matrix that only the compute process has, on its way to a page (torch)

Modules not marked torch are NumPy, as pages use them too.
"""
