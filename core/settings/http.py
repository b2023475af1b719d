"""The settings of HTTP requests to the fake vLLM."""

import msgspec


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests to the fake vLLM."""

    allowed_hosts: str | tuple[str, ...] = ()
    """Further names under which it may be addressed while it listens on loopback without a key;
    `*` is any."""
