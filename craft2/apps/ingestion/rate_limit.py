"""A token bucket for each client: so many metrics a second, and what was saved up on top.

A bucket holds `per_second` tokens at most and is refilled at that rate; a metric takes one. Who
finds enough goes on; who does not is told how long to wait. A batch larger than a full bucket is
let through when the bucket is full, and leaves a debt: else it could never be sent.

Pure: the time is an argument.

>>> limiter = RateLimiter(per_second=10)
>>> limiter.take("web-7", 10, now_s=0.0), limiter.take("web-7", 1, now_s=0.0)
(0.0, 0.1)
>>> limiter.take("web-8", 1, now_s=0.0)
0.0

Source: J. Turner, "New Directions in Communications (or Which Way to the Information Age?)", IEEE
Communications Magazine, 1986, where the bucket leaks instead of being filled.
"""

from __future__ import annotations

from craft2.errors import Craft2Error

_FEW = 1_000  # buckets; more than that are looked through for full ones


class RateLimiter:
    """See the module.

    Invariant: in any time t a client gets at most `per_second * (t + 1)` tokens, plus what its
    largest batch has beyond a full bucket.
    """

    def __init__(self, per_second: float) -> None:
        """per_second: of each client; 0: no limit."""
        if not (per_second >= 0 and per_second < float("inf")):
            raise Craft2Error(f"a rate limit of {per_second}", "give 0 (none) or a positive number")
        self.per_second = per_second
        self._buckets: dict[str, tuple[float, float]] = {}  # client -> tokens at that second
        self._look_again_at = _FEW

    def take(self, client: str, count: int, now_s: float) -> float:
        """Take `count` tokens and return 0.0; or take none and return the seconds to wait."""
        if not self.per_second:
            return 0.0
        tokens = self._tokens(client, now_s)
        needed = min(float(count), self.per_second)
        if tokens < needed:
            return (needed - tokens) / self.per_second
        self._buckets[client] = tokens - count, now_s
        if len(self._buckets) >= self._look_again_at:
            self._forget_full(now_s)
        return 0.0

    def _tokens(self, client: str, now_s: float) -> float:
        tokens, then_s = self._buckets.get(client, (self.per_second, now_s))
        return min(tokens + max(now_s - then_s, 0.0) * self.per_second, self.per_second)

    def _forget_full(self, now_s: float) -> None:
        """A full bucket is as good as none, so memory is for clients of the last second or so."""
        self._buckets = {
            client: bucket
            for client, bucket in self._buckets.items()
            if self._tokens(client, now_s) < self.per_second
        }
        self._look_again_at = max(_FEW, 2 * len(self._buckets))
