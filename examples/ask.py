"""Client for an episode's model, for examples with short agents."""

import re
from collections.abc import Mapping
from typing import Any, Self

import httpx

from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.models import OpenaiBaseUrlAndApiKey

_NUMBER = re.compile(r"-?\d+")


class Asker:
    """Thread-safe client of chat models; use it as a context.

    Args:
        seconds: An answer may take so long.
        headers: Of every request.
    """

    def __init__(self, seconds: float = 240.0, headers: Mapping[str, str] | None = None) -> None:
        self._http = httpx.Client(timeout=seconds, trust_env=False, headers=headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def ask(self, api: OpenaiBaseUrlAndApiKey, text: str, **more: Any) -> str:
        """Return the model's answer to one user message.

        Args:
            api: Whose model.
            text: The message.
            more: Further fields of the request.

        Raises:
            SwarmError: no answer; the episode cannot be used any more.
        """
        messages = [{"role": "user", "content": text}]
        return str(self.message(api, **{"messages": messages, **more}).get("content") or "")

    def message(self, api: OpenaiBaseUrlAndApiKey, **request: Any) -> dict[str, Any]:
        """Return the model's whole message, including tool calls.

        Args:
            api: Whose model.
            request: Fields of the request: `messages`, `tools`, ...

        Raises:
            SwarmError: no answer; the episode cannot be used any more.
        """
        body = {"model": api.model, **request}
        head = {"Authorization": f"Bearer {api.api_key}"}
        try:
            answer = self._http.post(f"{api.base_url}/chat/completions", json=body, headers=head)
            answer.raise_for_status()
            # Servers up to 2026-05 say an error in a 200, which has no choices.
            return dict(answer.json()["choices"][0]["message"])
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            raise SwarmError(f"no answer: {error!r:.300}", api.episode_uuid) from error


def last_number(text: str) -> int | None:
    """Return the last whole number of a text; None without one."""
    numbers = _NUMBER.findall(text)
    return int(numbers[-1][:30]) if numbers else None
