"""How the mini models are made: text, tokenizer, training, distillation, model cards.

`python -m compute.training --help` lists the steps in the order they run. Only this package trains; the course itself
reads the finished `data/checkpoints/`.
"""
