"""What it costs mini-256 to make its keys and values from fewer numbers, without training it again: loss against the model's own,
in pairs, on 96 windows spread evenly over the validation text. Differences here are large or nil; the whole text would tell no more."""

from __future__ import annotations

from typing import Any

from compute import latent
from compute.measures.job import Job, Report, Value, nobody
from compute.measures.quantize import circumstances

BY_WEIGHTS = (64, 128)  # ranks at which the directions are also chosen by the weights alone
TOLERANCE = {"absolute": 3e-4}  # nats per token; eigenvectors of nearly equal energies turn with the last digit

TEXT = {"text": "data/texts, 96 windows of 256 tokens without earlier context, spread evenly over all 12 files",
        "interval": "paired; units of one window, stratified by source, Student’s t"}  # fmt: skip


def name(rank: int, weighing: str = "activations") -> str:
    return f"latent.{latent.MODEL}.{'' if weighing == 'activations' else 'weights-'}r{rank}"


def low_rank(*, rank: int, weighing: str, report: Report = nobody) -> dict[str, Value]:
    from compute.engine import latents
    from compute.engine.registry import shared

    small = latents.low_rank(shared().get(latent.MODEL).weights, rank, weighing)
    by = "energies of y = W h over real h" if weighing == "activations" else "W alone"
    around = {"numbers_a_token_and_layer": rank, "directions": by, "calibration": f"{latent.CALIBRATING * 256:,} tokens that mini-256 wrote itself; no validation text", "trained_again": "no"}
    key, zh, en = name(rank, weighing), "按真实激活选方向" if weighing == "activations" else "只按权重选方向", f"directions by {'real activations' if weighing == 'activations' else 'the weights alone'}"
    says = {"zh": f"mini-256 每层只存 {rank} 个数的潜向量（{zh}）：损失比原来多多少", "en": f"mini-256 with a latent of {rank} numbers a layer ({en}): loss above its own"}
    return {f"{key}.loss_change": _change(small, around, says, report)}


def mqa(*, report: Report = nobody) -> dict[str, Value]:
    from compute.engine import latents
    from compute.engine.registry import shared

    around = {"numbers_a_token_and_layer": latent.shape().kept // latent.shape().kv_heads, "heads": "all KV heads of a layer replaced by their mean", "trained_again": "no"}
    says = {"zh": "mini-256 每层两个 KV 头取平均、合成一个（MQA），不再训练：损失多多少", "en": "mini-256 with the two KV heads of a layer averaged into one (MQA), not trained again: loss above its own"}
    return {f"latent.{latent.MODEL}.mqa.loss_change": _change(latents.pooled(shared().get(latent.MODEL).weights), around, says, report)}


def _change(weights: Any, around: dict[str, Any], says: dict[str, str], report: Report) -> Value:
    from compute.quantize.loss import losses, unquantized
    from compute.quantize.paired import change

    text, before = unquantized(latent.MODEL, quick=True, report=lambda part, note: report(0.4 * part, note))
    after = losses(weights, text, None, lambda part, note: report(0.4 + 0.6 * part, note))
    found = change(before, after, text.counts, text.sources, text.together)
    own = float(before.sum() / text.counts.sum())
    return Value(found.value, "nat/token", TOLERANCE, circumstances(latent.MODEL) | TEXT | around | {"loss_before": own}, says=says,
                 interval95=(found.low, found.high), n=found.tokens)  # fmt: skip


MEASURES = {"latent.low_rank": low_rank, "latent.mqa": mqa}


def jobs() -> list[Job]:
    asked = [(rank, "activations") for rank in latent.RANKS] + [(rank, "weights") for rank in BY_WEIGHTS]
    found = [Job("latent.low_rank", {"rank": rank, "weighing": weighing}, (f"{name(rank, weighing)}.loss_change",), (latent.MODEL,)) for rank, weighing in asked]
    return [*found, Job("latent.mqa", {}, (f"latent.{latent.MODEL}.mqa.loss_change",), (latent.MODEL,))]
