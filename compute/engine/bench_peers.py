"""Other engines on the same weights: transformers, and llama.cpp through node-llama-cpp.

llama.cpp is found where `--llama FOLDER` says, a folder in which this was run:

    npm install --ignore-scripts --omit=optional node-llama-cpp@3.22.1 @node-llama-cpp/linux-x64@3.22.1

A peer writes `limit` tokens after each prompt, greedily and past any end token, and says how long that took.
"""

from __future__ import annotations

import json
import logging
import subprocess
import tempfile
import time
from collections.abc import Sequence as Row
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import torch

from compute.engine.bench import Clock, in_transformers
from compute.engine.loader import Model, take_apart


@dataclass(frozen=True)
class Request:
    prompt: tuple[int, ...]
    limit: int


@dataclass(frozen=True)
class Ran:
    """texts: tokens of each request; seconds: from the first prompt to the last token; decoding: of a request that runs alone,
    from its first token to its last."""

    texts: list[list[int]]
    seconds: float
    decoding: float = 0.0


PAGE = 16


class Transformers:
    """The same tensors in transformers' own class. capacity: positions of the longest request."""

    def __init__(self, model: Model, slots: int, capacity: int):
        from transformers import ContinuousBatchingConfig, GenerationConfig

        logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)  # it misses psutil and a GPU, and needs neither
        self.slots, self.reference = slots, in_transformers(model)
        greedy = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0)
        config = ContinuousBatchingConfig(page_size=PAGE, num_blocks=slots * (capacity // PAGE + 2), max_batch_tokens=256, max_requests_per_batch=slots)
        self.manager = self.reference.init_continuous_batching(generation_config=greedy, continuous_batching_config=config)

    def alone(self, requests: Row[Request]) -> Ran:
        """`generate`, one request after the other."""
        texts, decoding, began = [], 0.0, time.perf_counter()
        for request in requests:
            clock, ids = Clock(), torch.tensor([request.prompt])
            made = self.reference.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=request.limit, do_sample=False, streamer=clock)
            texts.append(made[0, ids.shape[1] :].tolist())
            decoding += clock.ticks[-1] - clock.ticks[1]
        return Ran(texts, time.perf_counter() - began, decoding)

    def batches(self, requests: Row[Request]) -> Ran:
        """`generate` for batches of `slots`, each as long as its longest request."""
        texts, began = [], time.perf_counter()
        for at in range(0, len(requests), self.slots):
            some = requests[at : at + self.slots]
            width = max(len(request.prompt) for request in some)
            ids, seen = torch.zeros(len(some), width, dtype=torch.long), torch.zeros(len(some), width, dtype=torch.long)
            for row, request in enumerate(some):  # padded at the left, so that all write at the same position
                ids[row, width - len(request.prompt) :] = torch.tensor(request.prompt)
                seen[row, width - len(request.prompt) :] = 1
            made = self.reference.generate(ids, attention_mask=seen, max_new_tokens=max(r.limit for r in some), do_sample=False)
            texts += [row[width : width + request.limit].tolist() for row, request in zip(made, some)]
        return Ran(texts, time.perf_counter() - began)

    def continuous(self, requests: Row[Request]) -> Ran:
        """The continuous-batching API, whose manager makes its steps in a thread of its own."""
        if not self.manager.is_running():
            self.manager.start()
        began = time.perf_counter()
        names = [self.manager.add_request(list(request.prompt), max_new_tokens=request.limit) for request in requests]
        made: dict[str, list[int]] = {}
        while len(made) < len(names):
            result = self.manager.get_result(timeout=60)
            if result is None:
                raise RuntimeError("transformers' continuous batching gave no answer within a minute")
            if result.is_finished():
                made[result.request_id] = list(result.generated_tokens)
        return Ran([made[name] for name in names], time.perf_counter() - began)

    def close(self) -> None:
        self.manager.stop(block=True)


class LlamaCpp:
    """A node process with the model in float32, or with a GGUF file that is there. Call it with requests, and how many may run
    together."""

    def __init__(self, folder: Path, model: Model, slots: int, capacity: int, file: Path | None = None):
        self._made = tempfile.TemporaryDirectory()
        file = file or write_gguf(model, Path(self._made.name) / "model.gguf")
        script = Path(__file__).with_name("bench_llama.mjs")
        sizes = [str(n) for n in (model.threads, slots, capacity)]
        self._node = subprocess.Popen(["node", script, folder.resolve(), file, *sizes], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()

    def __call__(self, requests: Row[Request], together: int) -> Ran:
        job = {"requests": [{"prompt": request.prompt, "limit": request.limit} for request in requests], "together": together}
        print(json.dumps(job), file=self._node.stdin, flush=True)
        made = self._answer()
        return Ran(made["texts"], made["seconds"], sum(made["decoding"]))

    def _answer(self) -> dict:
        line = self._node.stdout.readline()
        if not line:
            raise RuntimeError(f"llama.cpp ended with status {self._node.wait()}")
        return json.loads(line)

    def close(self) -> None:
        self._node.stdin.close()
        self._node.wait()
        self._made.cleanup()


def write_gguf(model: Model, path: Path) -> Path:
    """A Llama in float32, as llama.cpp reads it. Words of the vocabulary matter little, as only token ids go in and out."""
    c, kind = model.config, gguf.GGMLQuantizationType.F32
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(c.context)
    writer.add_embedding_length(c.hidden)
    writer.add_block_count(c.layers)
    writer.add_feed_forward_length(c.intermediate)
    writer.add_head_count(c.heads)
    writer.add_head_count_kv(c.kv_heads)
    writer.add_key_length(c.head_dim)
    writer.add_value_length(c.head_dim)
    writer.add_rope_dimension_count(c.head_dim)
    writer.add_rope_freq_base(c.rope.theta)
    writer.add_layer_norm_rms_eps(c.norm_eps)
    writer.add_vocab_size(c.vocabulary)
    inner = json.loads(model.tokenizer.inner.to_str())
    words = {id: word for word, id in model.tokenizer.inner.get_vocab().items()}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([words.get(id, f"[PAD{id}]") for id in range(c.vocabulary)])
    writer.add_token_types([gguf.TokenType.NORMAL] * c.vocabulary)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in inner["model"]["merges"]])
    writer.add_eos_token_id(0)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, c.layers)
    for name, tensor in take_apart(model.weights).items():
        if name == "lm_head.weight" and c.tied:
            continue
        value = tensor.float().numpy()
        if "q_proj" in name or "k_proj" in name:  # llama.cpp turns neighbours, not halves
            heads = c.heads if "q_proj" in name else c.kv_heads
            value = value.reshape(heads, 2, c.head_dim // 2, -1).swapaxes(1, 2).reshape(value.shape)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), np.ascontiguousarray(value), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
