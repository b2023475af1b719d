"""The settings a running proxy uses: file, environment and flags merged, without any key."""

import msgspec

from core.settings import Settings

HIDDEN = "(hidden)"
"""Stands for the value of a key that must not be shown."""


class EffectiveSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Response of `GET /control/settings`.

    Attributes:
        settings: The merged settings. A key that is not in a file is `HIDDEN`; of one in a file
            only the file is named.
        servers: Name of each swarm server to its current address.
    """

    settings: Settings
    servers: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def needs_key(self) -> bool:
        """Whether `/v1` requires a key."""
        return bool(self.settings.proxy.api_key or self.settings.proxy.api_key_file)


def shown_settings(settings: Settings) -> Settings:
    """Return `settings` without the value of any key."""
    proxy, upstream = settings.proxy, settings.upstream
    return msgspec.structs.replace(
        settings,
        proxy=msgspec.structs.replace(proxy, api_key=_shown(proxy.api_key, proxy.api_key_file)),
        upstream=msgspec.structs.replace(upstream, key=_shown(upstream.key, upstream.key_file)),
    )


def _shown(key: str, file: str) -> str:
    return HIDDEN if key and not file else ""
