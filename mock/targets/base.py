"""What targets of all kinds share: the values of their templates, their secrets, their warnings."""

import hashlib
import logging
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ajet_swarm.common.text import content_text, one_line, redact
from mock.targets.openai import Answer, Question
from mock.targets.spec import Spec

log = logging.getLogger("mock")

OUTPUT_CAP = 4 << 20
"""Bytes of an answer."""
HIDDEN = "[hidden]"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where a run takes place."""

    base_url: str
    """OpenAI-compatible address of the model, with `/v1`."""
    api_key: str = ""
    model: str = "ajet"
    cert: str = ""
    sessions: bool = True
    """Whether that address is a proxy's, which knows `/sessions/ID/v1`."""


class Local:
    """The part of a target that is the same for programs, applications and functions."""

    in_session = True

    def __init__(self, spec: Spec, setting: Setting) -> None:
        self.name = spec.told
        self._setting = setting
        self._shared = spec
        self._warned = False
        own = {name: os.environ.get(name, "") for name in spec.env}
        self._env = own | {
            one: os.environ.get(one.removeprefix("env:"), "")
            for one in spec.used
            if one.startswith("env:")
        }
        secrets = {*self._env.values(), setting.api_key}
        self._secrets = sorted((one for one in secrets if len(one) >= 4), key=len, reverse=True)

    async def close(self) -> None:
        """Nothing is held."""

    async def over(self, session: str) -> None:
        """The conversation is over: nothing is kept of it."""

    def values(self, question: Question, **more: Any) -> dict[str, Any]:
        """What the names in braces stand for."""
        base_url = self.base_url(question.session)
        return {
            **{name: value for name, value in self._env.items() if name.startswith("env:")},
            "query": question.query,
            "messages": list(question.messages),
            "system": system_of(question),
            "base_url": base_url,
            "root_url": base_url.removesuffix("/v1"),
            "api_key": self._setting.api_key or "any-key",
            "model": self._shared.model or self._setting.model,
            "session": question.session,
            "row": question.sent_id,
            "turn": str(question.turn),
            "here": str(self._shared.path.resolve().parent),
            "python": sys.executable,
            **more,
        }

    def base_url(self, session: str) -> str:
        """Where the application finds the model in one conversation."""
        base = (self._shared.base_url or self._setting.base_url).rstrip("/")
        root, sign, _ = base.rpartition("/v1")
        if not (session and sign and self._shared.sessions and self._setting.sessions):
            return base
        return f"{root}/sessions/{quote(session, safe='')}/v1"

    def hide(self, text: str) -> str:
        """`text` without the values of secret variables and what looks like a key."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return redact(text)

    def failed(self, error: str, began: float, most: int = 400) -> Answer:
        """No answer, and why, in so many characters."""
        return Answer(error=one_line(self.hide(error), most), seconds=time.monotonic() - began)

    def lost_words(self, question: Question) -> None:
        """Say once when a row has more than its query and the target has no place for it."""
        if self._warned or question.turn > 1 or {"messages"} & self._shared.used:
            return
        before = [one for one in question.messages[:-1] if one.get("role") != "system"]
        system = bool(system_of(question)) and "system" not in self._shared.used
        if before or system:
            self._warned = True
            what = "system prompts" if system else "earlier messages"
            log.warning("%s: the %s of rows do not reach it, only queries", self.name, what)


def system_of(question: Question) -> str:
    """The system prompt of a row."""
    first: Mapping[str, Any] = question.messages[0] if question.messages else {}
    return content_text(first.get("content")) if first.get("role") == "system" else ""


def session_name(mock_id: str, sent_id: str) -> str:
    """A session's name that any address takes."""
    told = f"{mock_id}-{sent_id}"
    name = _UNSAFE.sub("-", told)
    if name == told and len(name) <= 100:
        return name
    return f"{name[:90]}-{hashlib.blake2b(told.encode(), digest_size=4).hexdigest()}"


def shown(path: Path) -> str:
    """A path as people write it."""
    home = str(Path.home())
    text = str(path)
    return "~" + text[len(home) :] if text.startswith(home + os.sep) else text
