"""Every way a request can fail, as one clear sentence in the reader's language.

A LabError carries a code and the values of the case; the sentence is looked up, so the command line, the service and
a page say the same thing. Each sentence names the value and the way out.
"""

from __future__ import annotations

import errno
import logging
import math
import uuid
from typing import Any

log = logging.getLogger(__name__)

SHOWN = 80  # characters of a name that nobody knows
SHOWN_TEXT = 240  # characters of any other value

MESSAGES: dict[str, dict[str, str]] = {
    "bad_input": {
        "zh": "参数 {field} = {value!r} 不行：{reason_zh}。",
        "en": "{field} = {value!r} is not possible: {reason}.",
    },
    "unknown_name": {
        "zh": "没有名为 {value!r} 的{what_zh}；已有：{known}。",
        "en": "there is no {what} called {value!r}; known: {known}.",
    },
    "does_not_fit": {
        "zh": "放不下：{model} 在 {chip} 上需要 {needed_gb:.4g} GB（权重 {weights_gb:.4g} + KV 与状态 {cache_gb:.4g}），"
        "显存 {memory_gb:.4g} GB，还差 {missing_gb:.4g} GB；请减小 batch 或上下文、降低位宽，或换更大的卡。",
        "en": "does not fit: {model} on {chip} needs {needed_gb:.4g} GB (weights {weights_gb:.4g} + KV and state "
        "{cache_gb:.4g}), the card has {memory_gb:.4g} GB, {missing_gb:.4g} GB are missing; take a smaller batch or "
        "context, fewer bits, or a larger card.",
    },
    "not_measured": {
        "zh": "这台机器还没有测过；点“测一测这台机器”，或运行 python -m compute call machine.measure（约 {seconds} 秒）。",
        "en": "this machine has not been measured yet; press “Measure this machine”, or run python -m compute call machine.measure (about {seconds} s).",
    },
    "not_calibrated": {
        "zh": "没有 {chip} 在 {precision} 下的公开内核实测，标定不了；只有理想上界。有的是：{known}。",
        "en": "nobody published kernel measurements of {chip} in {precision}, so only the ideal bound is known; there are some of: {known}.",
    },
    "broken_data": {
        "zh": "数据文件 {path} 有问题：{reason_zh}；请从仓库恢复该文件。",
        "en": "the data file {path} is broken: {reason}; restore it from the repository.",
    },
    "unavailable": {
        "zh": "计算服务暂时不在（{reason_zh}）；页面改用已存的结果，服务恢复后会自动接上。",
        "en": "the compute service is away ({reason}); the page uses stored results and reconnects by itself.",
    },
    "busy": {
        "zh": "计算服务正忙，前面还有 {waiting} 个任务；请约 {retry_after:.0f} 秒后再试。",
        "en": "the compute service is busy with {waiting} jobs waiting; try again in about {retry_after:.0f} s.",
    },
    "rate_limited": {
        "zh": "同一来源每分钟最多 {limit} 次；请约 {retry_after:.0f} 秒后再试。",
        "en": "at most {limit} calls a minute from one client; try again in about {retry_after:.0f} s.",
    },
    "cancelled": {"zh": "已取消。", "en": "cancelled."},
    "timed_out": {
        "zh": "{function} 超过了 {limit:.0f} 秒的时限，已停止；请缩短输入再试。",
        "en": "{function} passed its limit of {limit:.0f} s and was stopped; try a shorter input.",
    },
    "no_model": {
        "zh": "模型 {model} 无法载入：{reason_zh}；{way_out_zh}。",
        "en": "model {model} cannot be loaded: {reason}; {way_out}",
    },
    "out_of_memory": {
        "zh": "内存不够，这次没有算成；其余部分照常可用。请缩短输入、减少份数或换小一点的模型，也可以过一会儿再试。",
        "en": "there was not enough memory for this; everything else goes on. Try a shorter input, fewer texts or a smaller model, or try again later.",
    },
    "disk_full": {
        "zh": "磁盘满了，这次的结果没有存下来，以前存的都还在；请腾出一些空间再试。",
        "en": "the disk is full, so this result was not kept; what was stored before is still there. Free some space and try again.",
    },
    "worker_lost": {
        "zh": "算它的 Ray 进程死了，重来 {retries} 次还是一样（{reason}）；算好的都存下了，再执行同样的命令会接着算其余的。",
        "en": "the Ray process that made it died, and {retries} more did ({reason}); what was made is stored, and the same command goes on with the rest.",
    },
    "internal": {
        "zh": "这里出了程序错误（编号 {id}）；其余部分照常可用，详情在服务日志里。",
        "en": "something went wrong on our side (id {id}); everything else goes on, details are in the service log.",
    },
}


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"


class LabError(Exception):
    """A failure that can be told to a learner. `code` names the sentence in MESSAGES, `values` fill it."""

    def __init__(self, code: str, **values: Any):
        self.code, self.values = code, values
        super().__init__(self.message("en"))

    def message(self, lang: str) -> str:
        return MESSAGES[self.code][lang].format(**self.values)

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "values": self.values, "message": {lang: self.message(lang) for lang in ("zh", "en")}}

    @staticmethod
    def from_json(data: dict[str, Any]) -> LabError:
        kind = next((k for k in LabError.__subclasses__() if data["code"] in k.codes), LabError)
        error = kind.__new__(kind)
        LabError.__init__(error, data["code"], **data["values"])
        return error

    def __reduce__(self):
        return LabError.from_json, ({"code": self.code, "values": self.values},)


class BadInput(LabError):
    codes = ("bad_input",)

    def __init__(self, field: str, value: Any, reason: str, reason_zh: str):
        if isinstance(value, float) and not math.isfinite(value):
            value = str(value)  # JSON has no NaN
        if isinstance(value, str):
            value = cut(value, SHOWN_TEXT)
        super().__init__("bad_input", field=field, value=value, reason=reason, reason_zh=reason_zh)

    def named(self, **names: str) -> BadInput:
        """The same complaint about the field as its sender calls it."""
        return BadInput(**{**self.values, "field": names.get(self.values["field"], self.values["field"])})

    def about(self, field: str, value: Any) -> BadInput:
        """The same reason, about what its sender wrote."""
        return BadInput(field, value, self.values["reason"], self.values["reason_zh"])


class UnknownName(LabError):
    codes = ("unknown_name",)

    def __init__(self, what: str, what_zh: str, value: Any, known: list[str]):
        if isinstance(value, str):
            value = cut(value, SHOWN)
        super().__init__("unknown_name", what=what, what_zh=what_zh, value=value, known=", ".join(known))


class Refused(LabError):
    """The setting is understood and impossible: shown as such, with the numbers, never as a figure."""

    codes = ("does_not_fit", "not_measured", "not_calibrated")


class BrokenData(LabError):
    codes = ("broken_data",)

    def __init__(self, path: Any, reason: str, reason_zh: str | None = None):
        """Without reason_zh the Chinese sentence quotes the English reason, as for a parser's own words."""
        super().__init__("broken_data", path=str(path), reason=reason, reason_zh=reason_zh or reason)


class Unavailable(LabError):
    codes = ("unavailable", "no_model")


class Busy(LabError):
    codes = ("busy", "rate_limited")

    def __init__(self, waiting: int, retry_after: float):
        super().__init__("busy", waiting=waiting, retry_after=retry_after)


class Cancelled(LabError):
    codes = ("cancelled",)

    def __init__(self):
        super().__init__("cancelled")


class TimedOut(LabError):
    codes = ("timed_out",)


class Internal(LabError):
    codes = ("internal", "out_of_memory", "disk_full")


NO_MEMORY = ("out of memory", "allocate memory", "not enough memory", "ALLOC_FAILED", "start new thread")  # of a GPU, of a CPU, of the system


def lacking(error: BaseException) -> str | None:
    """The code that says what ran out, if that is what an error means. Python, torch and the system each have words of their own for it."""
    match error:
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return "disk_full"
        case MemoryError() | OSError(errno=errno.ENOMEM):
            return "out_of_memory"
        case RuntimeError() if any(words in str(error) for words in NO_MEMORY):
            return "out_of_memory"
    return None


def unforeseen(doing: str, error: BaseException) -> Internal:
    """Logs the error with its traceback. Where something ran out the learner is told so, otherwise only the number under which it is found there."""
    if code := lacking(error):
        log.error("%s while %s", code, doing, exc_info=error)
        return Internal(code)
    number = uuid.uuid4().hex[:8]
    log.error("internal error %s while %s", number, doing, exc_info=error)
    return Internal("internal", id=number)
