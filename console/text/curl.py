"""A request as a command line that asks it again."""

import shlex
from collections.abc import Iterable

import msgspec

from core.events import Event, GroupOpened


def curl_of(events: Iterable[Event], url: str) -> str:
    """The request that opened a group, for a shell; empty when its body is not known.

    The key is taken from the environment, as no key is kept.

    Args:
        events: Those of the group.
        url: Where the proxy is.
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
