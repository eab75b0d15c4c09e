"""Whose requests a server answers: read from the headers alone, for the web server and the compute service alike.

A browser can be made to send requests by any page that its user looks at. It says so in two headers which no page can forge: the name
under which it reached the server (Host, which gives away a name that its owner points here: DNS rebinding), and whose page asks
(Origin, on whatever changes something and on WebSockets; Sec-Fetch-Site, on everything, where the connection is trusted).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from starlette.types import Scope

LOOPBACK = ("127.0.0.1", "localhost", "::1")
SHOWN = 80  # characters of a header that nobody knows


def name_of(address: str) -> str:
    """The host's name in an origin, or in "//" and a Host header; "" for what is neither."""
    try:
        parts = urlsplit(address)
        _ = parts.port  # raises for what is no port
        return "" if "@" in parts.netloc else (parts.hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_address(name: str) -> bool:
    """Whether it is an IP address: nobody can point that at another machine, so no rebinding comes by it."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def stranger(scope: Scope, named: Callable[[str], bool], ours: Callable[[str, str], bool]) -> tuple[str, str] | None:
    """The header that speaks against a request and its value, or None. named(host's name): may the server be called so;
    ours(origin, Host header): is that a page of ours."""
    hosts, origins, sites, modes = (list(_values(scope, name)) for name in (b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode"))
    host = hosts[0] if len(hosts) == 1 else ""
    if not named(name_of(f"//{host}")):
        return "Host", ", ".join(hosts)[:SHOWN]
    for origin in origins:
        if not ours(origin, host):
            return "Origin", origin[:SHOWN]
    followed = scope.get("method") in ("GET", "HEAD") and "navigate" in modes  # a link that somebody clicked, elsewhere
    if not followed and (foreign := [site for site in sites if site not in ("same-origin", "none")]):
        return "Sec-Fetch-Site", foreign[0][:SHOWN]
    return None


def _values(scope: Scope, name: bytes) -> Iterable[str]:
    return (value.decode("latin-1") for key, value in scope["headers"] if key == name)
