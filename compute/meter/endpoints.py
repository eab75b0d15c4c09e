"""Where the meter may send requests: to the service itself, and to what the operator lists in endpoints.toml, beside models.toml.

    [vllm]
    url = "http://10.0.0.5:8000/v1"   # as a client's base_url
    model = "Qwen3-8B"                # optional, as are all lines below; else the first that the server lists
    api = "chat"                      # completions or chat; else completions where they are served
    key = "VLLM_KEY"                  # the environment variable that holds the key, never the key

INFERENCE_LAB_ENDPOINTS names another file. On the command line the operator types an address himself.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from compute.errors import BadInput, UnknownName
from compute.meter.client import Target

ROOT = Path(__file__).parents[2]
VARIABLE = "INFERENCE_LAB_ENDPOINTS"
OWN = "own"  # the service itself
KEYS = {"url": str, "model": str, "api": str, "key": str}
APIS = ("completions", "chat")


@dataclass(frozen=True)
class Listed:
    """An endpoint as pages show it. trouble: why it cannot be measured, in each language."""

    name: str
    url: str
    model: str
    trouble: dict[str, str] | None = None


def file() -> Path:
    return Path(os.environ.get(VARIABLE) or ROOT / "endpoints.toml")


def listing() -> list[Listed]:
    """Every name that `find` knows, and what is wrong with those that it would refuse. Sends nothing."""
    found = [Listed(OWN, "", "")]
    try:
        tables = read(file())
    except BadInput as wrong:
        return [*found, Listed(file().name, "", "", told(wrong))]
    for name, values in tables.items():
        try:
            target = target_of(name, values)
            found.append(Listed(name, target.url, target.model))
        except BadInput as wrong:
            found.append(Listed(name, "", "", told(wrong)))
    return found


def told(wrong: BadInput) -> dict[str, str]:
    return {lang: wrong.message(lang) for lang in ("zh", "en")}


def find(name: str) -> Target:
    """An endpoint of the operator's list. Raises UnknownName, or BadInput for an entry that cannot be."""
    tables = read(file())
    if name not in tables:
        raise UnknownName("endpoint", "端点", name[:80], [OWN, *tables])
    return target_of(name, tables[name])


def read(path: Path) -> dict[str, Any]:
    """The tables of the list; {} where there is none. Raises BadInput."""
    if not path.is_file():
        if os.environ.get(VARIABLE):
            raise BadInput(VARIABLE, path.name, "there is no such file", "没有这个文件")
        return {}
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput("endpoints", path.name, f"it is not TOML ({error})", f"不是 TOML（{error}）") from None
    if OWN in tables:
        raise BadInput("endpoints", OWN, "this name is taken by the service itself", "这个名字留给服务自己")
    return tables


def target_of(name: str, values: Any) -> Target:
    """One table of the list, checked. Raises BadInput naming entry and line."""
    if not isinstance(values, dict) or "url" not in values:
        raise BadInput(f"endpoints.{name}", "…", 'a table with url = "…" is needed', '要一个带 url = "…" 的表')
    for key, value in values.items():
        if key not in KEYS or not isinstance(value, KEYS[key]):
            raise BadInput(f"endpoints.{name}.{key}", "…", f"possible are {', '.join(KEYS)}, each a text", f"可用的是 {'、'.join(KEYS)}，都是文字")
    if values.get("api", APIS[0]) not in APIS:
        raise BadInput(f"endpoints.{name}.api", values["api"], "it must be completions or chat", "只能是 completions 或 chat")
    variable = values.get("key", "")
    return Target(name, checked(values["url"], f"endpoints.{name}.url"), values.get("model", ""), values.get("api"), key_in(variable), variable)


def key_in(variable: str) -> str:
    """The key that this environment variable holds; without a name none. Raises BadInput, which never shows the key."""
    if not variable:
        return ""
    shown = variable[:80] if re.fullmatch("[A-Z][A-Z0-9]*(_[A-Z0-9]+)*", variable) else "…"  # anything else may be the key itself, put there by mistake
    key = os.environ.get(variable, "")
    if not key:
        raise BadInput("key", shown, "an environment variable of this name is not set; the key itself does not belong here", "没有叫这个名字的环境变量；这里不写密钥本身")
    if not (key.isascii() and key.isprintable()):
        raise BadInput("key", shown, "what this environment variable holds cannot stand in a header", "这个环境变量里的内容不能放进请求头")
    return key


def checked(url: str, field: str = "url") -> str:
    """An address as requests are made from, without what clients append themselves. Raises BadInput, and looks nothing up."""

    def wrong(en: str, zh: str) -> BadInput:
        shown = url if "@" not in url else "…@" + url.rpartition("@")[2]  # a password must not reach a page
        return BadInput(field, shown[:200], en, zh)

    if not (url.isascii() and url.isprintable()) or " " in url or "\\" in url:
        raise wrong("only visible ASCII characters can stand in an address", "地址里只能有可见的 ASCII 字符")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise wrong(f"it is no address ({error})", f"不是地址（{error}）") from None
    if parts.scheme not in ("http", "https"):
        raise wrong("only http:// and https:// are possible", "只能是 http:// 或 https://")
    if "@" in parts.netloc:
        raise wrong("a user or password in the address is refused; use key", "地址里不能带用户名或口令，请用 key")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise wrong("nothing after ? or # is possible in a base address", "基地址里不能有 ? 或 # 之后的部分")
    if not parts.hostname or port == 0:
        raise wrong("it names no host or no port", "没有写主机，或端口不对")
    path = parts.path.rstrip("/").removesuffix("/completions").removesuffix("/chat").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path or '/v1'}"
