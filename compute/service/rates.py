"""How often one client may call."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

from compute.errors import LabError


def counted(address: str) -> str:
    """Whose calls count together: of IPv6 a whole /64, as one machine has all of it."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((ip, 64), strict=False)) if ip.version == 6 and not ip.is_loopback else address


class Rates:
    """A bucket of `per_minute` calls for each client that fills at the same rate; the clients seen last are kept."""

    def __init__(self, per_minute: int, kept: int = 10_000):
        self.per_minute, self.kept = per_minute, kept
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # client → (calls left, seen at)

    def take(self, client: str, now: float) -> None:
        """Raises Busy when the bucket is empty. now: seconds of a clock that never goes back."""
        left, seen = self._buckets.pop(client, (float(self.per_minute), now))
        left = min(self.per_minute, left + (now - seen) * self.per_minute / 60)
        self._buckets[client] = (max(left - 1, 0.0) if left >= 1 else left, now)
        while len(self._buckets) > self.kept:
            self._buckets.popitem(last=False)
        if left < 1:
            values = {"limit": self.per_minute, "retry_after": (1 - left) * 60 / self.per_minute}
            raise LabError.from_json({"code": "rate_limited", "values": values})
