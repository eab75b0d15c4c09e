"""One training loop for all mini models. Budgets are in steps, so a second run follows the same recipe.

The loop keeps model, optimisers and step under `build/training/<name>/` and goes on from there after a stop. Batches depend
on (seed, step) alone and the models have no dropout, so nothing else needs keeping.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from compute.training import evaluate, mixture
from compute.training import model as mini
from compute.training.muon import Muon
from compute.training.tokenizer import load as load_tokenizer

ROOT = mixture.ROOT
RUNS = ROOT / "build" / "training"
CHECKPOINTS = ROOT / "data" / "checkpoints"
TOKENIZER = CHECKPOINTS / "mini-256" / "tokenizer.json"


@dataclass(frozen=True)
class Recipe:
    """What a run is made of. Learning rate: linear warm-up, flat, then linear decay to `last_rate` over the last part."""

    name: str
    shape: str
    steps: int
    seed: int = 1
    rows: int = 16  # windows of 256 tokens a step
    muon_rate: float = 0.02  # for matrices
    adam_rate: float = 3e-3  # for the embedding and the norms
    warmup: int = 60
    decay: float = 0.45  # the part of the steps in which the rate falls
    last_rate: float = 0.02  # of the full rate
    clip: float = 1.0
    window: int = mixture.CONTEXT  # tokens that a row predicts, at most

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 <= self.decay <= 1 or self.shape not in mini.SHAPES:
            raise ValueError(f"not a recipe: {self}")

    @property
    def tokens(self) -> int:
        return self.steps * self.rows * self.window

    def rate(self, step: int) -> float:
        """Learning rate of a step as a part of the full one."""
        rising = min(1.0, (step + 1) / self.warmup)
        left = (self.steps - step) / max(1.0, self.decay * self.steps)
        return rising * max(self.last_rate, min(1.0, left))


MINI_256 = Recipe("mini-256", "mini-256", steps=3_200)
NOISE_STEPS, NOISE_SEEDS = 150, (1, 2, 3, 4, 5)

Loss = Callable[[Callable[[Tensor], Tensor], Tensor, int], Tensor]  # (model, batch, step) -> scalar


def next_token(model: Callable[[Tensor], Tensor], batch: Tensor, step: int) -> Tensor:
    """Mean cross-entropy in nats per token; batch is (rows, CONTEXT + 1)."""
    return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def optimisers(model: nn.Module, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon orthogonalises the step of each matrix; the embedding, the norms and a router take AdamW."""
    matrices, others = [], []
    for name, parameter in model.named_parameters():
        (others if parameter.ndim != 2 or "embed" in name or name.endswith("moe.gate.weight") else matrices).append(parameter)
    return [
        Muon(matrices, lr=recipe.muon_rate),
        torch.optim.AdamW(others, lr=recipe.adam_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


@dataclass
class Progress:
    """What a log line of a run says."""

    step: int
    loss: float
    seconds: float


def save_state(path: Path, state: dict) -> None:
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    os.replace(partial, path)


def run(
    recipe: Recipe,
    loss_of: Loss,
    batches: mixture.Mixture,
    folder: Path,
    *,
    watch: Callable[[mini.Llama], dict[str, float]] | None = None,
    watch_every: int = 250,
    keep_every: int = 100,
    stop_after: int | None = None,
    on_watch: Callable[[mini.Llama, int], None] | None = None,
    compiled: bool = False,
    model: nn.Module | None = None,
) -> tuple[nn.Module, dict]:
    """Train to the end, or for `stop_after` more steps, and return the model with its log.

    `watch(model)` gives figures for the curve every `watch_every` steps. The log: recipe, curve (a list of records with
    step, tokens, loss averaged since the last record, and what `watch` said), seconds of training, conditions.
    `compiled`: fuse the model with torch.compile, which needs a C++ compiler and saves about a quarter of the time.
    `model`: what to train instead of a Llama of the recipe's shape; its weights are where the run begins. `batches` is
    anything with `batch(seed, step, rows)`; the loss alone looks into a batch.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "state.pt"
    model = model or mini.Llama(mini.SHAPES[recipe.shape], recipe.seed)
    steppers = optimisers(model, recipe)
    full_rates = [[g["lr"] for g in o.param_groups] for o in steppers]
    log: dict = {"recipe": asdict(recipe), "curve": [], "seconds": 0.0, "stops": 0, "starts": []}
    step = 0
    if kept.exists():
        state = torch.load(kept, weights_only=True)
        if not continues(Recipe(**state["recipe"]), recipe, state["step"]):
            raise ValueError(f"{kept} belongs to another recipe: {state['recipe']}; move it away to start anew")
        model.load_state_dict(state["model"])
        for optimiser, its in zip(steppers, state["optimisers"], strict=True):
            optimiser.load_state_dict(its)
        step, log = state["step"], json.loads(state["log"])
        if step == recipe.steps:
            return model, log
        log["recipe"] = asdict(recipe)
        log["stops"] += 1
    log.setdefault("starts", []).append({"step": step, "compiled": compiled, **conditions()})
    first, began, sums = step, time.monotonic(), state_sums(kept)
    seconds_before = log["seconds"]
    forward = torch.compile(model) if compiled else model

    def keep() -> None:
        log["seconds"] = seconds_before + time.monotonic() - began
        save_state(
            kept,
            {
                "recipe": asdict(recipe),
                "model": model.state_dict(),
                "optimisers": [o.state_dict() for o in steppers],
                "step": step,
                "log": json.dumps(log),
                "sums": sums,
            },
        )

    while step < recipe.steps and (stop_after is None or step - first < stop_after):
        part = recipe.rate(step)
        for optimiser, rates in zip(steppers, full_rates, strict=True):
            for group, rate in zip(optimiser.param_groups, rates, strict=True):
                group["lr"] = rate * part
        loss = loss_of(forward, batches.batch(recipe.seed, step, recipe.rows), step)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        for optimiser in steppers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        step += 1
        sums = [sums[0] + loss.item(), sums[1] + 1]
        if not math.isfinite(sums[0]):
            raise FloatingPointError(f"{recipe.name}: the loss is {loss.item()} at step {step}")
        if step % watch_every == 0 or step == recipe.steps:
            record = {"step": step, "tokens": step * recipe.rows * recipe.window, "loss": sums[0] / sums[1]}
            if watch:
                record |= watch(model)
            log["curve"].append(record)
            sums = [0.0, 0]
            print(progress(recipe, step, first, began, record), flush=True)
            if on_watch:
                on_watch(model, step)
        if step % keep_every == 0 or step == recipe.steps:
            keep()
        if step % 50 == 0 and sums[1]:
            print(progress(recipe, step, first, began, {"loss": sums[0] / sums[1]}), flush=True)
    keep()
    return model, log


def continues(old: Recipe, new: Recipe, step: int) -> bool:
    """Whether `step` steps of the old recipe are also the first of the new one: only the budget may differ, and only
    while both rates are still flat."""
    same = {**asdict(old), "steps": new.steps} == asdict(new)
    return same and all(old.rate(s) == new.rate(s) for s in range(step))


def state_sums(kept: Path) -> list[float]:
    """Loss summed since the last record of the curve, and over how many steps."""
    return list(torch.load(kept, weights_only=True)["sums"]) if kept.exists() else [0.0, 0]


def progress(recipe: Recipe, step: int, first: int, began: float, figures: dict[str, float]) -> str:
    speed = (step - first) / (time.monotonic() - began)
    left = (recipe.steps - step) / speed / 60
    told = "  ".join(f"{k} {v:.4f}" for k, v in figures.items() if isinstance(v, float))
    return f"{recipe.name} {step}/{recipe.steps}  {speed * recipe.rows * recipe.window:.0f} tok/s  {left:.1f} min left  {told}"


def conditions() -> dict:
    """Machine and software of a run, for the model card."""
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        processor = names[0] if names else processor
    return {
        "date": time.strftime("%Y-%m-%d"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": processor,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "unset"),
        "precision": "float32",
    }


def watch_losses(tokenizer_json: Path = TOKENIZER, most: int = 32) -> Callable[[mini.Llama], dict[str, float]]:
    """Validation loss on the first `most` windows of one source a domain; a watch for the curve, not the final figure."""
    tokenizer = load_tokenizer(tokenizer_json.parent)
    chosen = {d: names[0] for d, names in mixture.DOMAINS.items()}
    held = {d: mixture.encode(tokenizer, mixture.read_text(n)) for d, n in chosen.items()}
    return lambda model: {f"val_{d}": evaluate.loss(model, stream, most) for d, stream in held.items()}


def publish(model: mini.Llama, log: dict, name: str) -> None:
    """The checkpoint directory with its log; the card is written from both later."""
    folder = CHECKPOINTS / name
    mini.save(model, TOKENIZER, folder)
    (folder / "training-log.json").write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")


def train_target(compiled: bool = False) -> None:
    """mini-256, with a checkpoint to try every 500 steps."""

    def snapshot(model: mini.Llama, step: int) -> None:
        if step % 500 == 0:
            mini.save(model, TOKENIZER, CHECKPOINTS / MINI_256.name)

    batches, folder = mixture.Mixture.load(), RUNS / MINI_256.name
    model, log = run(MINI_256, next_token, batches, folder, watch=watch_losses(), on_watch=snapshot, compiled=compiled)
    publish(model, log, MINI_256.name)


def noise_floor(compiled: bool = False) -> None:
    """The same short recipe from five seeds: how much of a difference in loss is luck. Seeds change the initial
    weights and the batches. Only the losses are kept."""
    tokenizer = load_tokenizer(TOKENIZER.parent)
    batches = mixture.Mixture.load()
    found = RUNS / "noise" / "losses.json"
    found.parent.mkdir(parents=True, exist_ok=True)
    losses: dict[str, dict] = json.loads(found.read_text()) if found.exists() else {}
    for seed in NOISE_SEEDS:
        if str(seed) in losses:
            continue
        recipe = Recipe(f"noise-{seed}", "mini-256", steps=NOISE_STEPS, seed=seed)
        model, log = run(recipe, next_token, batches, RUNS / recipe.name, watch_every=NOISE_STEPS, compiled=compiled)
        model.eval()
        domains = evaluate.report(model, tokenizer)["domains"]
        losses[str(seed)] = {d: {k: r[k] for k in ("nats_per_token", "bits_per_byte")} for d, r in domains.items()}
        found.write_text(json.dumps(losses))
    spread = {}
    for domain in mixture.DOMAINS:
        values = torch.tensor([losses[str(s)][domain]["nats_per_token"] for s in NOISE_SEEDS], dtype=torch.float64)
        spread[domain] = {
            "mean_nats_per_token": float(values.mean()),
            "sd_nats_per_token": float(values.std(unbiased=True)),
            "least": float(values.min()),
            "most": float(values.max()),
        }
    recipe = asdict(Recipe("noise", "mini-256", steps=NOISE_STEPS)) | {"seed": list(NOISE_SEEDS)}
    content = {
        "what": "mini-256's recipe at a reduced budget, equal for all seeds; float32 loss on the whole validation texts",
        "command": "python -m compute.training noise",
        "recipe": recipe,
        "tokens_a_run": NOISE_STEPS * recipe["rows"] * mixture.CONTEXT,
        "conditions": conditions(),
        "spread": spread,
        "losses": losses,
    }
    (CHECKPOINTS / "noise-floor.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
