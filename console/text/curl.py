"""Formats a request as a `curl` command line."""

import shlex
from collections.abc import Iterable

import msgspec

from core.events import Event, GroupOpened


def curl_of(events: Iterable[Event], url: str) -> str:
    """Return a shell command that repeats a group's request; empty when its body is unknown.

    The command takes the API key from the environment, because no key is stored.

    Args:
        events: The events of the group.
        url: URL of the proxy.
    """
    for event in events:
        if isinstance(event, GroupOpened):
            body = dict(event.body)
            if event.model:
                body["model"] = event.model
            if event.stream:
                body["stream"] = True
            data = msgspec.json.encode(body).decode()
            return (
                f"curl {shlex.quote(f'{url}/v1/chat/completions')} \\\n"
                "  -H 'content-type: application/json' \\\n"
                '  -H "authorization: Bearer ${OPENAI_API_KEY:-none}" \\\n'
                f"  -d {shlex.quote(data)}"
            )
    return ""
