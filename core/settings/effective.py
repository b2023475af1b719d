"""The settings in use by a running proxy: file, environment and flags merged, without secrets."""

import msgspec

from core.settings import Settings

HIDDEN = "(hidden)"
"""Replacement of an API key that must not be shown."""


class EffectiveSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Response of `GET /control/settings`.

    Attributes:
        settings: The merged settings. An API key is `HIDDEN`, or empty when it is read from a file,
            whose name is shown.
        servers: Name of each swarm server -> its current address.
    """

    settings: Settings
    servers: dict[str, str] = msgspec.field(default_factory=dict)


def shown_settings(settings: Settings) -> Settings:
    """Return `settings` without the value of any API key."""
    proxy, upstream = settings.proxy, settings.upstream
    return msgspec.structs.replace(
        settings,
        proxy=msgspec.structs.replace(proxy, api_key=_shown(proxy.api_key, proxy.api_key_file)),
        upstream=msgspec.structs.replace(upstream, key=_shown(upstream.key, upstream.key_file)),
    )


def _shown(key: str, file: str) -> str:
    return HIDDEN if key and not file else ""
