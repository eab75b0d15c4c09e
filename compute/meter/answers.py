"""What the bytes of a streamed answer say: server-sent events, and in them OpenAI's chunks. Pure, and trusts nothing."""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple

Api = Literal["completions", "chat"]
LONGEST_EVENT = 2**20  # bytes
MOST_COUNTED = 10**9  # tokens; more is nonsense, of which rates would be made
DONE = "[DONE]"


class Garbage(ValueError):
    """Not an answer of the protocol. en, zh: what it is instead."""

    def __init__(self, en: str, zh: str):
        super().__init__(en)
        self.en, self.zh = en, zh


class Usage(NamedTuple):
    """The server's own count. cached: of the prompt tokens, those it had in its cache; None where it does not say."""

    prompt: int
    output: int
    cached: int | None = None


class Said(NamedTuple):
    """What one event adds. text: it carries some; finish: why the text has ended, "" before; over: the last event of all; error: the
    server's words when it gave up; fingerprint: what the server says it is."""

    text: bool = False
    finish: str = ""
    usage: Usage | None = None
    fingerprint: str = ""
    over: bool = False
    error: str = ""


class Events:
    """The data of each event, out of bytes cut anywhere. Comments and other fields are passed over."""

    def __init__(self):
        self._rest = b""
        self._data: list[bytes] = []

    def push(self, chunk: bytes) -> list[str]:
        """Raises Garbage for an event without end, or one that is not UTF-8."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LONGEST_EVENT:
            raise Garbage(f"a line of more than {LONGEST_EVENT} bytes", f"一行超过 {LONGEST_EVENT} 字节")
        found = []
        for line in lines:
            line = line.rstrip(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                found.append(_text(b"\n".join(self._data)))
                self._data.clear()
        return found


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Garbage(f"not UTF-8: {shown(data)}", f"不是 UTF-8：{shown(data)}") from None


def read(event: str) -> Said:
    """One event of either protocol. Raises Garbage."""
    if event.strip() == DONE:
        return Said(over=True)
    try:
        body = json.loads(event)
    except (ValueError, RecursionError):
        raise Garbage(f"not JSON: {shown(event)}", f"不是 JSON：{shown(event)}") from None
    if not isinstance(body, dict):
        raise Garbage(f"not a chunk of an answer: {shown(event)}", f"不是回答的一块：{shown(event)}")
    if body.get("error"):
        return Said(error=complaint(body))
    choices, usage = body.get("choices"), usage_of(body.get("usage"))
    if choices == [] or choices is None and usage:  # the last chunk carries only the count; Azure begins with an empty one
        return Said(usage=usage)
    try:
        choice = choices[0]
        return Said(has_text(choice), str(choice.get("finish_reason") or ""), usage, str(body.get("system_fingerprint") or ""))
    except (TypeError, KeyError, IndexError, AttributeError):
        raise Garbage(f"not a chunk of an answer: {shown(event)}", f"不是回答的一块：{shown(event)}") from None


def has_text(choice: dict[str, Any]) -> bool:
    """Thinking and calls of tools are tokens too; a role alone is not."""
    if "text" in choice:
        return bool(choice["text"])
    delta = choice["delta"]
    return bool(delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning") or delta.get("refusal") or delta.get("tool_calls"))


def usage_of(usage: Any) -> Usage | None:
    """None where the server does not count, or counts nonsense."""
    match usage:
        case {"prompt_tokens": int(prompt), "completion_tokens": int(output)} if bool not in (type(prompt), type(output)) and 0 <= prompt < MOST_COUNTED and 0 <= output < MOST_COUNTED:
            details = usage.get("prompt_tokens_details")
            cached = details.get("cached_tokens") if isinstance(details, dict) else None
            return Usage(prompt, output, cached if type(cached) is int and 0 <= cached <= prompt else None)
    return None


def complaint(body: Any) -> str:
    """What a server says of its refusal, wherever it puts that."""
    for name in ("error", "detail", "message"):
        said = body.get(name) if isinstance(body, dict) else None
        if said:
            inner = said.get("message") if isinstance(said, dict) else None
            return shown(inner or (said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)), 200)
    return shown(json.dumps(body, ensure_ascii=False), 200)


def refusal(body: bytes) -> str:
    """The words in the body of an error."""
    try:
        return complaint(json.loads(body))
    except (ValueError, RecursionError):
        return shown(body, 200)


def shown(said: Any, most: int = 60) -> str:
    """Its beginning in one line, without control characters."""
    text = said[: 4 * most].decode(errors="replace") if isinstance(said, bytes) else str(said)
    text = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return text if len(text) <= most else text[: most - 1] + "…"
