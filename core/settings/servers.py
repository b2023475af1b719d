"""The settings of one swarm server, by its name."""

import msgspec


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server of `swarm_url`; `swarm` is the name of the only one."""

    vision: bool = False
    """Whether its model accepts images; if not, a request with an image is answered 400."""
