"""What a fixed state remembers, against loops written out."""

import numpy as np
import pytest

from compute import recall


def by_hand(rule, width, pairs, seed=0, rewritten=False):
    """(cosine, found) of the first n pairs, mean over drawings, one vector at a time."""
    keys, values, before = recall.draw(width, pairs, seed)
    cosines, found = [], []
    for d in range(recall.DRAWINGS):
        state = np.zeros((width, width))
        for k, v, old in zip(keys[d], values[d], before[d]):
            for value in ([old] if rewritten else []) + [v]:
                state = state + np.outer(value, k) if rule == "additive" else state @ (np.eye(width) - np.outer(k, k)) + np.outer(value, k)
        for i in range(pairs):
            back = state @ keys[d, i]
            cosines.append(back @ values[d, i] / np.linalg.norm(back))
            found.append(np.argmax(values[d] @ back) == i)
    return np.mean(cosines), np.mean(found)


@pytest.mark.parametrize("rule", ["additive", "delta"])
@pytest.mark.parametrize("rewritten", [False, True])
def test_the_curve_is_the_recurrence(rule, rewritten):
    """Catches: a transposed state, a read before the last write, the old value counted for the new."""
    got = next(f for f in recall.curve(rule, 16, rewritten, 3) if f.pairs == 32)
    cosine, found = by_hand(rule, 16, 32, 3, rewritten)
    assert got.cosine == pytest.approx(cosine, abs=1e-9) and got.found == pytest.approx(found)


def test_what_theory_says():
    """Catches: keys that are no random directions. Additive: |noise|² = (n − 1)/d of a value of length 1, so the cosine is about
    1/√(1 + (n − 1)/d); the pair that the delta rule wrote last comes back exactly; softmax loses nothing at any number."""
    for f in recall.curve("additive", 64)[4:]:
        assert f.cosine == pytest.approx((1 + (f.pairs - 1) / 64) ** -0.5, abs=0.02)
    assert all(f.cosines[-1] == pytest.approx(1) for f in recall.curve("delta", 64))
    assert all(f.found == 1 and f.cosine > 0.99 for f in recall.curve("softmax", 64))


def test_orthogonal_keys_are_remembered_exactly():
    """Catches: a rule that loses what fits. d keys at right angles, in either rule."""
    for rule in ("additive", "delta"):
        state, values = np.zeros((1, 8, 8)), np.random.default_rng(0).standard_normal((8, 8))
        for key, value in zip(np.eye(8), values):
            recall.write(state, key[None], value[None], rule)
        assert np.allclose(state[0] @ np.eye(8), values.T)
