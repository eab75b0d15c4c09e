"""What stays in English on a Chinese paper of a number."""

from __future__ import annotations

import re

from components.text import _given, condition, formula, said
from compute.quantity import Quantity

SAME = set(
    "token tokens logit logits softmax norm embedding prompt prefill decode batch kernel query key value config nat qkv kv mtp beam search delta"  # terms of the lessons
    " max min argmax exp ln tr cos round len encode count df ms"  # functions, symbols, units
    " cpu int float gemm torch python streamlit nginx transformers vllm sglang trtllm node-llama-cpp lm-evaluation-harness dashscope commit"
    " head_dim lm_head hidden_size intermediate_size top_k top_p min_p".split()  # products, formats, names of configs
)
WORD = re.compile(r"(?<![\w./:-])[a-z]+(?:-[a-z]+)*[a-z](?![\w/:=-]|\.[\w…])")


def english(quantity: Quantity) -> list[str]:
    """Words of formula, inputs, conditions and place of the source. What is quoted, what stays verbatim and a paper's title do not count."""
    shown = [formula(quantity.formula, "zh"), said(quantity.value, "zh") if isinstance(quantity.value, str) else "", said(quantity.source.where, "zh") if quantity.source else ""]
    for name, value in {**quantity.inputs, **quantity.conditions}.items():
        label, text = condition(name, value, "zh")
        shown += ["" if label in SAME else label.replace("_", " "), "" if name in _given()["verbatim"] else text]
    return [word for text in shown for word in WORD.findall(re.sub("“[^”]*”", "", text)) if word not in SAME]
