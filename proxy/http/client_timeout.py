"""How long a client waits for its answer, where its request says so.

The SDKs of OpenAI and Anthropic send the timeout they use, in seconds: `x-stainless-read-timeout`
(Python) or `x-stainless-timeout` (JavaScript). On a stream it is the time between two pieces, which
the proxy's keep-alives are shorter than.
"""

from collections.abc import Mapping

HEADERS = ("x-stainless-timeout", "x-stainless-read-timeout")
LONGEST = 7200.0
"""Seconds above which a value tells nothing: some SDKs send milliseconds."""


def client_timeout(headers: Mapping[str, str], stream: bool) -> float:
    """Seconds after which the client gives up by its own headers; 0 when that is not known."""
    if stream:
        return 0.0
    found = [_seconds(headers.get(name, "")) for name in HEADERS]
    return min((one for one in found if 0 < one <= LONGEST), default=0.0)


def _seconds(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0
