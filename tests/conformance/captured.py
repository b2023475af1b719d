"""Exchanges with a real vLLM 0.32 (`wire/*.txt`): the request, and the whole answer.

The first line of a file is the request as a curl command without quotes; the raw answer follows.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

FOLDER = Path(__file__).parent / "wire"
NAMES = tuple(sorted(file.stem for file in FOLDER.glob("*.txt")))
LONG: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "word " * 20_000}],
    "temperature": 0,
}
"""The body of the request that was sent from a file."""


@dataclass(frozen=True)
class Exchange:
    """One request and its answer."""

    method: str
    path: str
    request_headers: dict[str, str]
    request: bytes | None
    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


def exchange(name: str) -> Exchange:
    """The exchange of that name."""
    command, _, raw = (FOLDER / f"{name}.txt").read_text().partition("\n")
    head, _, body = raw.partition("\n\n")
    first, *lines = head.splitlines()
    pairs = (line.partition(": ") for line in lines)
    url_and_headers, _, data = command.removeprefix("# curl ").partition(" -d ")
    if " --data-binary " in url_and_headers:
        data = json.dumps(LONG)
    url, *options = url_and_headers.split(" -H ")
    more = (option.split(" --")[0].partition(": ") for option in options)
    return Exchange(
        method="POST" if data else "GET",
        path=urlsplit(url.split()[0]).path,
        request_headers={key: value for key, _, value in more},
        request=data.encode() if data else None,
        status=int(first.split()[1]),
        headers={key.lower(): value for key, _, value in pairs},
        body=body.removesuffix("\n").encode(),
    )
