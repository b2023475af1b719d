"""The client's own timeout, as announced in its request's headers.

The SDKs of OpenAI and Anthropic send the timeout they use, in seconds: `x-stainless-read-timeout`
(Python) or `x-stainless-timeout` (JavaScript). For a stream it limits the time between two events,
which the proxy's keep-alives always stay below.
"""

from collections.abc import Mapping

HEADERS = ("x-stainless-timeout", "x-stainless-read-timeout")
_HEADERS = frozenset(HEADERS)
MAX_TIMEOUT = 7200.0
"""Seconds above which a value is ignored: some SDKs send milliseconds."""


def client_timeout(headers: Mapping[str, str], stream: bool) -> float:
    """Return the seconds after which the client gives up; 0 if unknown."""
    if stream or _HEADERS.isdisjoint(headers):
        return 0.0
    timeouts = [_seconds(headers.get(name, "")) for name in HEADERS]
    return min((seconds for seconds in timeouts if 0 < seconds <= MAX_TIMEOUT), default=0.0)


def _seconds(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0
