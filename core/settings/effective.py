"""What a running proxy was started with: file, environment and flags together, without any key."""

import msgspec

from core.settings import Settings

HIDDEN = "(hidden)"
"""Stands for the value of a key that must not be shown."""


class EffectiveSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `GET /control/settings`.

    Attributes:
        settings: As the proxy uses them. A key that is in no file is `HIDDEN`; of one that is in
            a file only the file is named.
        servers: Name of each swarm server to its address at this moment.
    """

    settings: Settings
    servers: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def needs_key(self) -> bool:
        """Whether `/v1` requires a key."""
        return bool(self.settings.proxy.api_key or self.settings.proxy.api_key_file)


def shown_settings(settings: Settings) -> Settings:
    """`settings` without the value of any key."""
    proxy, upstream = settings.proxy, settings.upstream
    return msgspec.structs.replace(
        settings,
        proxy=msgspec.structs.replace(proxy, api_key=_shown(proxy.api_key, proxy.api_key_file)),
        upstream=msgspec.structs.replace(upstream, key=_shown(upstream.key, upstream.key_file)),
    )


def _shown(key: str, file: str) -> str:
    return HIDDEN if key and not file else ""
