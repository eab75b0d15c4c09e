"""One prompt, several texts: which blocks they share, when a block is copied, and what sharing saves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints

from components import Guess, Live, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Range, Text
from components.kv_calculator import binary
from components.text import Words, amount, digits, ending, quantity
from compute import facts, kv, numbers, precompute, sharing
from compute.errors import BadInput
from compute.measures.sharing import SEEDS, TEXTS, from_prompt
from compute.quantity import Quantity
from compute.sharing import Frame

Mode = Literal["parallel", "beam"]
MODES: tuple[Mode, ...] = ("parallel", "beam")
LONGEST = 200
MOST = 8  # texts
BLOCKS = (4, 8, 16)
PAPERS = {mode: (f"vllm.sharing_{mode}_alpaca", f"vllm.sharing_{mode}_sharegpt") for mode in MODES}


def with_kv(id: str) -> str:
    """A model whose tokens leave keys and values."""
    if not kv.per_token(id).bytes:
        raise BadInput("model", id, "a bare parameter count keeps no KV", "只有参数量就没有 KV")
    return facts.model(id).id


def models() -> tuple[str, ...]:
    return tuple(id for id, shape in facts.models().items() if shape.caches)


@parameters
class Params:
    """texts: the language of the recorded prompts; text: the learner's own, empty for a recorded one. seed: of the first
    sample, the next ones count on. model: whose bytes are counted; the texts are always our small model's."""

    mode: Mode = "parallel"
    prompt: Literal["short", "middle", "long"] = "middle"
    texts: Literal["zh", "en"] = "zh"
    text: Annotated[str, StringConstraints(strip_whitespace=True, max_length=LONGEST)] = ""
    samples: Annotated[int, Field(ge=2, le=MOST)] = 4
    block: Annotated[int, Field(ge=1, le=64)] = 4
    seed: Annotated[int, Field(ge=0, le=SEEDS - MOST)] = 0
    model: Annotated[str, AfterValidator(with_kv)] = "qwen3.8-27b"


@dataclass(frozen=True)
class Result:
    """frames: the block tables after each event. waiting: the learner's own text was not run yet, a recording is shown."""

    params: Params
    text: str
    prompt: tuple[int, ...]
    pieces: Mapping[int, str]
    frames: tuple[Frame, ...]
    bytes_per_token: float
    conditions: Mapping[str, Any]
    mark: Literal["live", "replay"]
    waiting: bool

    @property
    def last(self) -> Frame:
        return self.frames[-1]

    @property
    def apart(self) -> int:
        return self.last.apart(self.params.block)

    @property
    def saved(self) -> float:
        return sharing.saved(self.last, self.params.block)

    @property
    def bytes_saved(self) -> float:
        return (self.apart - self.last.used) * self.params.block * self.bytes_per_token

    @property
    def new(self) -> int:
        """Tokens that each text has written in the end."""
        return self.last.step

    @property
    def copies(self) -> int:
        return sum(frame.kind == "copy" for frame in self.frames)


def run(params: Params, answer: Mapping[str, Any] | None = None) -> Result:
    if answer is not None:
        prompt, steps, mark = tuple(answer["prompt"]), answer["steps"], "live"
    else:
        answer = recorded(params)
        prompt, steps, mark = tuple(answer["prompt"]), _steps(params, answer), "replay"
    pieces = {int(token): piece for token, piece in answer["pieces"].items()}
    frames = sharing.unfold(prompt, steps, params.block)
    waiting = mark == "replay" and params.text not in ("", answer["text"])
    return Result(params, answer["text"], prompt, pieces, frames, kv.per_token(params.model).bytes, answer["conditions"], mark, waiting)


def recorded(params: Params) -> Mapping[str, Any]:
    """The stored run that these settings ask for. Raises BrokenData when it is not there."""
    texts, prompt = next(((texts, name) for texts, named in TEXTS.items() for name, text in named.items() if text == params.text), (params.texts, params.prompt))
    return precompute.recorded(f"sharing.{texts}.{prompt}.{params.mode}")


def _steps(params: Params, kept: Mapping[str, Any]) -> Any:
    if params.mode == "beam":
        return kept["beams"][str(params.samples)]
    return from_prompt(kept["samples"][params.seed : params.seed + params.samples])


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    model = facts.model(result.params.model)
    return View(
        picture=Stage(_stage(result), steps=len(result.frames), height=520, start=opening(result.frames)),
        readouts=_readouts(result, scene),
        sentence=_sentence(result, scene),
        rows=_rows(result),
        papers=_papers(result),
        simplified=scene.words("simplified", model=model.name) + (scene.words("state", model=model.name) if model.state_bytes else ""),
    )


def opening(frames: tuple[Frame, ...]) -> int:
    """The first copy; where nothing is copied, the first fork."""
    kinds = [frame.kind for frame in frames]
    return kinds.index("copy") if "copy" in kinds else kinds.index("fork")


def _stage(result: Result) -> dict[str, Any]:
    n = len(result.prompt)
    frames = []
    for frame in result.frames:
        rows = [row and [row.ids[n:], row.written, row.blocks, row.parent, row.dropped] for row in frame.rows]
        end = max((at + 1 for at, count in enumerate(frame.refs) if count), default=0)  # blocks after it are free
        frames.append({
            "kind": frame.kind, "step": frame.step, "rows": rows, "refs": frame.refs[:end], "filled": frame.filled[:end], "who": frame.who,
            "copy": frame.copy and [frame.copy.source, frame.copy.target], "moved": frame.moved, "used": frame.used, "apart": frame.apart(result.params.block),
        })  # fmt: skip
    return {
        "mode": result.params.mode, "block": result.params.block, "total": len(result.last.refs), "prompt": result.prompt,
        "pieces": result.pieces, "frames": frames, "waiting": result.waiting,
    }  # fmt: skip


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, lang, last, before = scene.words, scene.lang, result.last, scene.before

    def change(now: str, then: str) -> str:
        return words("before", value=then) if before is not None and now != then else ""

    share = digits(100 * result.saved)
    quoted = [quantity(numbers.quoted_names()[name], "%", lang) for name in PAPERS[result.params.mode]]
    used, copied = f"{last.used:,}", f"{last.copied:,}"
    return (
        Readout(words("readout.used"), used, words("unit.blocks"), change(used, f"{before.last.used:,}" if before else ""), words("readout.used_note", apart=result.apart)),
        Readout(words("readout.saved"), share, "%", change(share, digits(100 * before.saved) if before else ""), words("readout.saved_note", short=quoted[0], long=quoted[1])),
        Readout(words("readout.bytes"), *binary(result.bytes_saved).split(" "), change(binary(result.bytes_saved), binary(before.bytes_saved) if before else ""),
                words("readout.bytes_note", model=facts.model(result.params.model).name, per=binary(result.bytes_per_token))),
        Readout(words("readout.copied"), copied, words("unit.positions"), change(copied, f"{before.last.copied:,}" if before else ""),
                words("readout.copied_note", copies=result.copies, apart=f"{last.copied_apart:,}")),
    )  # fmt: skip


def _sentence(result: Result, scene: Scene) -> str:
    p = result.params
    return scene.words(
        f"sentence.{p.mode}", text=ending(result.text), n=p.samples, new=result.new, prompt=len(result.prompt), block=p.block, used=result.last.used, apart=result.apart,
        saved=amount(result.saved, "ratio", scene.lang), copied=result.last.copied, copied_apart=f"{result.last.copied_apart:,}", bytes=binary(result.bytes_saved),
        model=facts.model(p.model).name,
    )  # fmt: skip


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    found, n = [], len(result.prompt)
    for at, frame in enumerate(result.frames, 1):
        for row, text in enumerate(frame.rows):
            if text is not None:
                found.append({
                    "event": at, "kind": frame.kind, "step": frame.step, "text": "ABCDEFGH"[row], "continuation": "".join(result.pieces[token] for token in text.ids[n:]),
                    "written_positions": text.written, "blocks": " ".join(map(str, text.blocks)), "dropped": text.dropped, "blocks_used": frame.used,
                    "blocks_without_sharing": frame.apart(result.params.block), "positions_copied": frame.copied,
                })  # fmt: skip
    return tuple(found)


def _papers(result: Result) -> tuple[Quantity, ...]:
    p, last = result.params, result.last
    inputs = {"texts": p.samples, "prompt_tokens": len(result.prompt), "new_tokens": result.new, "block_size": p.block}
    around = {**result.conditions, "text": result.text, "mode": p.mode} | ({"first seed": p.seed} if p.mode == "parallel" and result.mark == "replay" else {})
    return (
        Quantity(result.saved, "ratio", "computed", "1 − blocks owned / Σ ⌈written / block⌉", {"owned": last.used, "without_sharing": result.apart}, says=SAYS["saved"]),
        Quantity(last.used, "count", "computed", "blocks with a reference count above 0", inputs, says=SAYS["used"]),
        Quantity(result.bytes_saved, "B", "computed", "blocks saved × block × bytes per token", {"bytes_per_token": result.bytes_per_token, "model": p.model}, says=SAYS["bytes"]),
        Quantity(last.copied, "token", "computed", "Σ positions of a shared block before the next one, at each copy", {"copies": result.copies, "whole": last.copied_apart}, says=SAYS["copied"]),
        Quantity(p.samples * result.new, "token", "measured", "", {}, None, around, says=SAYS["texts"]),
        *(numbers.quoted_names()[name] for name in PAPERS[p.mode]),
    )  # fmt: skip


SAYS = {
    "saved": {"zh": "共享省下的块", "en": "share of blocks that sharing saves"},
    "used": {"zh": "共享时占的块", "en": "blocks owned with sharing"},
    "bytes": {"zh": "省下的 KV 字节", "en": "bytes of KV saved"},
    "copied": {"zh": "写时复制搬了的位置", "en": "positions copied on write"},
    "texts": {"zh": "真模型写出的 token", "en": "tokens that the real model wrote"},
}


# ---- guesses and widget

SHARES = {"5": 0.05, "30": 0.3, "60": 0.6, "90": 0.9}


def _truth(result: Result) -> Quantity:
    return Quantity(result.saved, "ratio", "computed", "1 − blocks owned / Σ ⌈written / block⌉", {"owned": result.last.used, "without_sharing": result.apart})


def _arguments(params: Params) -> dict[str, Any]:
    text = params.text or TEXTS[params.texts][params.prompt]
    seed = {"seed": params.seed} if params.mode == "parallel" else {}
    return {"mode": params.mode, "text": text, "count": params.samples} | seed


def _recorded_prompt(params: Params) -> bool:
    return not params.text


WIDGET = Widget(
    id="sharing",
    Params=Params,
    controls=(
        Choice("mode", lambda: MODES), Choice("prompt", lambda: ("short", "middle", "long"), when=_recorded_prompt), Range("samples", 2, MOST),
        Choice("block", lambda: BLOCKS, name=str), Text("text", LONGEST), Range("seed", 0, SEEDS - MOST, when=lambda p: p.mode == "parallel"),
        Choice("texts", lambda: ("zh", "en"), when=_recorded_prompt), Choice("model", models, name=lambda id: facts.model(id).name),
    ),
    run=run,
    draw=draw,
    guesses={"saved": Guess(truth=_truth, choices=tuple(SHARES), right=lambda r: min(SHARES, key=lambda id: abs(SHARES[id] - r.saved)))},
    live=Live("sharing.run", _arguments),
    presets={"en": {"texts": "en"}},
)  # fmt: skip
