"""The branch on sampling: what temperature and the three cuts do to four recorded distributions of mini-256."""

from __future__ import annotations


import numpy as np

from compute.claims.claim import claim, computed
from compute.quantity import Quantity
from compute.sampling import ORDERS, Floats, Sampling, entropy, probabilities, stages, top_p

MODEL = "mini-256"
K, MASS, BASE = 40, 0.9, 0.1  # the settings that the lesson compares
RARE, SENTENCE = 1e-3, 30  # below which a token belongs to the tail; tokens in a sentence
CUT = 50  # candidates that some interfaces show


def _logits(prompt: str) -> Floats:
    from compute import distributions  # whose store is made by code that imports the claims

    return distributions.stored(prompt).logits[MODEL]


def _p(prompt: str, temperature: float = 1.0, **rules) -> Floats:
    return probabilities(_logits(prompt), Sampling(temperature, **rules))


def _after(prompt: str) -> dict[str, str]:
    from compute.measures.distributions import PROMPTS

    return {"model": MODEL, "after": PROMPTS[prompt]}


# ---- one distribution: the best two, and how many the model hesitates between


def _best(prompt: str, temperature: float) -> tuple[float, float]:
    second, first = np.sort(_p(prompt, temperature))[-2:]
    return float(first), float(second)


@claim("sampling.giving.second", "“小明把苹果给了”之后，第二看好的 token 的概率", "probability of the second likeliest token after “小明把苹果给了”")
def _():
    return computed(_best("giving", 1.0)[1], "ratio", "softmax(logits), second largest", **_after("giving"))


def _ratio(prompt: str, temperature: float) -> Quantity:
    first, second = _best(prompt, temperature)
    return computed(first / second, "×", "p₁ / p₂ of softmax(logits / T) = exp((z₁ − z₂) / T)", T=temperature, p1=first, p2=second, **_after(prompt))


def _hesitates(prompt: str, temperature: float) -> Quantity:
    h = float(entropy(_p(prompt, temperature)))
    return computed(float(np.exp(h)), "token", "exp(H), H = −Σ p ln p of softmax(logits / T)", T=temperature, H=h, **_after(prompt))


for _name, _t in (("t0_5", 0.5), ("t1", 1.0), ("t2", 2.0)):
    claim(f"sampling.giving.{_name}.ratio", f"T = {_t:g} 时前两名的概率之比", f"ratio of the two likeliest at T = {_t:g}")(lambda t=_t: _ratio("giving", t))
for _prompt, _name, _t in (("giving", "t0_5", 0.5), ("giving", "t1", 1.0), ("giving", "t2", 2.0), ("manual", "t1", 1.0), ("poem", "t1", 1.0)):
    claim(f"sampling.{_prompt}.{_name}.hesitates", f"T = {_t:g} 时相当于在多少个同样可能的 token 间犹豫", f"equally likely tokens it amounts to at T = {_t:g}")(
        lambda p=_prompt, t=_t: _hesitates(p, t)
    )


# ---- the tail: tokens below RARE at temperature 1


def _tail(prompt: str) -> np.ndarray:
    return _p(prompt) < RARE


def _tail_mass(prompt: str, temperature: float) -> float:
    return float(_p(prompt, temperature)[_tail(prompt)].sum())


@claim("sampling.giving.head", "T = 1 时概率不低于千分之一的 token", "tokens of at least one in a thousand at T = 1")
def _():
    return computed(int(np.sum(~_tail("giving"))), "token", "tokens with p ≥ 0.001 at T = 1", **_after("giving"))


@claim("sampling.giving.tail", "T = 1 时概率不到千分之一的 token", "tokens of less than one in a thousand at T = 1")
def _():
    return computed(int(np.sum(_tail("giving"))), "token", "tokens with p < 0.001 at T = 1", **_after("giving"))


def _mass(temperature: float) -> Quantity:
    return computed(_tail_mass("giving", temperature), "ratio", "Σ p over the tokens with p < 0.001 at T = 1", T=temperature, **_after("giving"))


def _once(temperature: float) -> Quantity:
    mass = _tail_mass("giving", temperature)
    return computed(1 - (1 - mass) ** SENTENCE, "ratio", "1 − (1 − mass)^30, every step like this one", T=temperature, mass=mass, tokens=SENTENCE)


for _name, _t in (("t1", 1.0), ("t1_3", 1.3)):
    claim(f"sampling.giving.{_name}.tail_mass", f"T = {_t:g} 时尾巴的概率之和", f"probability of the tail at T = {_t:g}")(lambda t=_t: _mass(t))
    claim(f"sampling.giving.{_name}.tail_once", f"T = {_t:g} 时，三十步里至少抽到一次尾巴", f"at least one token of the tail in thirty at T = {_t:g}")(
        lambda t=_t: _once(t)
    )


# ---- three cuts

RULES = {
    "top_k": ({"top_k": K}, f"top-k {K}", f"the {K} likeliest"),
    "top_p": ({"top_p": MASS}, f"top-p {MASS:g}", f"fewest likeliest whose sum reaches {MASS:g}"),
    "min_p": ({"min_p": BASE}, f"min-p {BASE:g}", f"tokens with p ≥ {BASE:g} × the largest p"),
}


def _kept(prompt: str, temperature: float, rule: str) -> Quantity:
    settings, _, formula = RULES[rule]
    return computed(int(np.sum(_p(prompt, temperature, **settings) > 0)), "token", f"{formula}, after softmax(logits / T)", T=temperature, **_after(prompt))


for _prompt, _name, _t in (
    ("manual", "t1_3", 1.3), ("poem", "t1_3", 1.3), ("giving", "t1", 1.0), ("giving", "t1_3", 1.3), ("giving", "t2", 2.0), ("poem", "t1", 1.0),
):  # fmt: skip
    for _rule, (_, _said, _) in RULES.items():
        claim(f"sampling.{_prompt}.{_name}.{_rule}", f"T = {_t:g} 时 {_said} 保留的 token", f"tokens that {_said} keeps at T = {_t:g}")(
            lambda p=_prompt, t=_t, r=_rule: _kept(p, t, r)
        )


@claim("sampling.poem.t1_3.top_k_mass", f"T = 1.3 时前 {K} 名的概率之和", f"probability of the {K} likeliest at T = 1.3")
def _():
    return computed(float(np.sort(_p("poem", 1.3))[-K:].sum()), "ratio", f"Σ p over the {K} likeliest", T=1.3, **_after("poem"))


# ---- the order of the rules


def _in_order(order: str) -> Quantity:
    done = stages(_logits("giving"), Sampling(1.3, K, MASS, BASE, order))
    return computed(
        done[-1].count, "token", " → ".join(ORDERS[order]), T=1.3, top_k=K, top_p=MASS, min_p=BASE,
        **{stage.rule + "_leaves": stage.count for stage in done}, **_after("giving"),
    )  # fmt: skip


for _order in ORDERS:
    claim(f"sampling.giving.order.{_order}", f"{_order} 的次序，T = 1.3：最后留下的 token", f"tokens left by the order of {_order} at T = 1.3")(
        lambda o=_order: _in_order(o)
    )


@claim("sampling.min_p.before_temperature", "min-p 放在温度之前时，与放在 T = 1.3 之后的 0.1 切得一样的值", "base of min-p before the temperature that cuts like 0.1 after T = 1.3")
def _():
    return computed(BASE**1.3, "count", "base^T, as p ∝ exp(z / T) makes the ratio to the best its T-th root", base=BASE, T=1.3)


def _only_fifty() -> tuple[Floats, Floats]:
    p = _p("poem")
    shown = np.where(p >= np.sort(p)[-CUT], p, 0.0)
    return p, shown / shown.sum()


@claim("sampling.poem.fifty_mass", f"前 {CUT} 名的概率之和", f"probability of the {CUT} likeliest")
def _():
    p, _ = _only_fifty()
    return computed(float(np.sort(p)[-CUT:].sum()), "ratio", f"Σ p over the {CUT} likeliest", T=1.0, **_after("poem"))


@claim("sampling.poem.fifty_best", f"只在前 {CUT} 名里归一化后，第一名的概率", f"probability of the likeliest, normalised over the first {CUT} only")
def _():
    p, shown = _only_fifty()
    return computed(float(shown.max()), "ratio", f"p₁ / Σ p of the {CUT} likeliest", over_all=float(p.max()), **_after("poem"))


@claim("sampling.poem.fifty_top_p", f"先在前 {CUT} 名里归一化，再用 top-p {MASS:g} 保留的 token", f"tokens that top-p {MASS:g} keeps when only the first {CUT} were normalised")
def _():
    _, shown = _only_fifty()
    return computed(int(top_p(shown, MASS).sum()), "token", f"top-p {MASS:g} of the {CUT} likeliest, normalised over them", T=1.0, **_after("poem"))


# ---- exercises


@claim("sampling.exercise.ratio", "4 比 1 的两个 token，T = 0.5 时的概率之比", "ratio of two tokens that stood 4 to 1, at T = 0.5")
def _():
    return computed((0.4 / 0.1) ** (1 / 0.5), "×", "(p₁ / p₂)^(1/T)", p1=0.4, p2=0.1, T=0.5)


@claim("sampling.exercise.once", "尾巴占 1% 时，一百步里至少抽到一次", "at least one token of a tail of 1 % in a hundred steps")
def _():
    return computed(1 - 0.99**100, "ratio", "1 − (1 − 0.01)^100", mass=0.01, steps=100)
