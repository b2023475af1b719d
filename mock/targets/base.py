"""Common part of all targets: values of templates, secrets, warnings."""

import hashlib
import logging
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ajet_swarm.common.secrets import redact
from ajet_swarm.common.text import content_text
from mock.targets.question import Question
from mock.targets.spec import Spec

log = logging.getLogger("mock")

OUTPUT_CAP = 4 << 20
"""Maximum size of an answer in bytes."""
HIDDEN = "[hidden]"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEndpoint:
    """The model that applications under test call."""

    base_url: str
    """OpenAI-compatible address, with `/v1`."""
    api_key: str = ""
    model: str = "ajet"
    cert: str = ""
    """File with the server's certificate, when it is not publicly trusted."""
    sessions: bool = True
    """Whether the address is a proxy's, which serves `/sessions/ID/v1`."""


class TargetBase:
    """Common part of programs, applications and functions as targets."""

    in_session = True

    def __init__(self, spec: Spec, endpoint: ModelEndpoint) -> None:
        self.name = spec.label
        self._endpoint = endpoint
        self._shared = spec
        self._warned = False
        self._used = spec.used
        own = {name: os.environ.get(name, "") for name in spec.env}
        self._env = own | {
            name: os.environ.get(name.removeprefix("env:"), "")
            for name in self._used
            if name.startswith("env:")
        }
        secrets = {*self._env.values(), endpoint.api_key}
        self._secrets = sorted((text for text in secrets if len(text) >= 4), key=len, reverse=True)

    async def close(self) -> None:
        """Release resources; nothing by default."""

    async def end_conversation(self, session: str) -> None:
        """End of a conversation; nothing by default."""

    def values(self, question: Question, **more: Any) -> dict[str, Any]:
        """Return the values of the template names."""
        base_url = self.base_url(question.session)
        return {
            **{name: value for name, value in self._env.items() if name.startswith("env:")},
            "query": question.query,
            "messages": list(question.messages),
            "system": system_of(question),
            "base_url": base_url,
            "root_url": base_url.removesuffix("/v1"),
            "api_key": self._endpoint.api_key or "any-key",
            "model": self._shared.model or self._endpoint.model,
            "session": question.session,
            "row": question.sent_id,
            "turn": str(question.turn),
            "here": str(self._shared.path.resolve().parent),
            "python": sys.executable,
            **more,
        }

    def base_url(self, session: str) -> str:
        """Return the model's address for one conversation."""
        base = (self._shared.base_url or self._endpoint.base_url).rstrip("/")
        root, sign, _ = base.rpartition("/v1")
        if not (session and sign and self._shared.sessions and self._endpoint.sessions):
            return base
        return f"{root}/sessions/{quote(session, safe='')}/v1"

    def hide(self, text: str) -> str:
        """Return `text` without the values of secret variables and without anything that looks
        like a key."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return redact(text)

    def warn_dropped_messages(self, question: Question) -> None:
        """Warn once when a row has messages or images that no template of the target uses."""
        if self._warned or question.turn > 1 or {"messages"} & self._used:
            return
        before = [message for message in question.messages[:-1] if message.get("role") != "system"]
        system = bool(system_of(question)) and "system" not in self._used
        blocks = any(isinstance(message.get("content"), list) for message in question.messages)
        if before or system or blocks:
            self._warned = True
            what = "system prompts" if system else "earlier messages" if before else "images"
            log.warning("%s: it receives only the queries of rows, not their %s", self.name, what)


def system_of(question: Question) -> str:
    """Return the system prompt of a row."""
    first: Mapping[str, Any] = question.messages[0] if question.messages else {}
    return content_text(first.get("content")) if first.get("role") == "system" else ""


def session_name(mock_id: str, sent_id: str) -> str:
    """Return a session name that is valid in any address."""
    full_name = f"{mock_id}-{sent_id}"
    name = _UNSAFE.sub("-", full_name)
    if name == full_name and len(name) <= 100:
        return name
    return f"{name[:90]}-{hashlib.blake2b(full_name.encode(), digest_size=4).hexdigest()}"
