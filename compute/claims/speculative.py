"""Lesson 3: what a round of guesses is worth."""

from __future__ import annotations

from compute import speculative
from compute.claims.claim import claim, computed

ALPHA, K, COST = 0.8, 4, 0.05  # the worked example of the textbook


@claim("speculative.example.expected", "α = 0.8、k = 4 时，一轮平均写出的 token", "tokens a round writes on average at α = 0.8, k = 4")
def _():
    return computed(speculative.expected_tokens(ALPHA, K), "token", "(1 − α^(k+1)) / (1 − α)", alpha=ALPHA, k=K)


@claim("speculative.example.speedup", "α = 0.8、k = 4、c = 0.05 时的加速比", "speed-up at α = 0.8, k = 4, c = 0.05")
def _():
    return computed(speculative.speedup(ALPHA, K, COST), "×", "E / (1 + c·k)", alpha=ALPHA, k=K, c=COST)
