"""Why a request was not answered to its end, as a row of the errors table: a kind, and a sentence in each language."""

from __future__ import annotations

from dataclasses import dataclass

from compute.meter.report import Kind


@dataclass(eq=False)  # not frozen: a context manager that it passes through sets its traceback
class Why(Exception):
    """status: of the HTTP answer, where there was one. wait: seconds after which the server asks to come back."""

    kind: Kind
    en: str
    zh: str
    status: int = 0
    wait: float | None = None
    message: str = ""

    @property
    def says(self) -> dict[str, str]:
        return {"zh": self.zh, "en": self.en}


def redirected(status: int, where: str) -> Why:
    return Why("refused", f"it points elsewhere, to {where} (status {status}); redirects are never followed",
               f"它指向别处：{where}（状态码 {status}）；跳转一律不跟随", status)  # fmt: skip


def not_connected(reason: str) -> Why:
    return Why("connect", f"no connection: {reason}", f"连不上：{reason}")


def no_connection_within(seconds: float) -> Why:
    return Why("connect", f"no connection within {seconds:g} s", f"{seconds:g} 秒内没有连上")


def http(status: int, message: str, wait: float | None) -> Why:
    en, zh = f"status {status}" + (f": {message}" if message else ""), f"状态码 {status}" + (f"：{message}" if message else "")
    if wait is not None:
        en, zh = f"{en}; it asks to come back after {wait:g} s", f"{zh}；它请客户端 {wait:g} 秒后再来"
    return Why("http", en, zh, status, wait, message)


def gave_up(message: str) -> Why:
    return Why("http", f"it reported an error in the middle of the answer: {message}", f"回答到一半报错：{message}", message=message)


def silent(seconds: float) -> Why:
    return Why("stalled", f"no answer within {seconds:g} s", f"{seconds:g} 秒内没有回答")


def stalled(seconds: float, chunks: int) -> Why:
    return Why("stalled", f"nothing more for {seconds:g} s, after {chunks} chunks with text", f"收到 {chunks} 块文字后，{seconds:g} 秒没有动静")


def closed(chunks: int) -> Why:
    if not chunks:
        return Why("closed", "the connection ended before any text came", "一个字还没来，连接就断了")
    return Why("closed", f"the connection ended in the middle of the answer, after {chunks} chunks with text", f"收到 {chunks} 块文字后，连接在半途断了")


def garbage(en: str, zh: str) -> Why:
    return Why("garbage", f"the answer is not understood: {en}", f"回答看不懂：{zh}")


def endless_time(seconds: float) -> Why:
    return Why("endless", f"still not at its end after {seconds:g} s", f"{seconds:g} 秒后还没有结束")


def endless_bytes(most: int) -> Why:
    return Why("endless", f"more than {most:,} bytes", f"超过 {most:,} 字节")


def endless_chunks(most: int, asked: int) -> Why:
    return Why("endless", f"more than {most:,} chunks with text, where {asked:,} tokens were asked for", f"只要 {asked:,} 个 token，却来了超过 {most:,} 块文字")


def empty() -> Why:
    return Why("empty", "the answer ended without any text", "回答结束了，却没有一个字")
