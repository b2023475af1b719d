"""The settings of a judge, its rubric and its key; they are checked when the part is built."""

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from ajet_swarm.common.text import one_line
from ajet_swarm.common.urls import web_address
from core.runtime.secrets import is_placeholder
from core.runtime.sockets import is_loopback
from core.whole_file import read_small
from proxy.rewards.part import Setting, SettingError, read_text

Mode = Literal["pointwise", "listwise", "pairwise"]
MODES: tuple[Mode, ...] = ("pointwise", "listwise", "pairwise")
OWN = "own"
"""Value of `url` for the server that the policy's own answers come from."""
RUBRIC_LIMIT = 64 << 10
"""Maximum size of a rubric file in bytes."""

RUBRIC = """\
Give a high score to an answer that does what the last user message asks for: it is correct,
relevant, complete, and no longer than it needs to be. Give a low score to an answer that is wrong,
beside the point, empty, cut off, repeats itself, or makes up facts.
"""
"""The rubric when no rubric file is named."""

SETTINGS: Mapping[str, Setting] = {
    "url": Setting(
        "text",
        ...,
        "Base URL of an OpenAI-compatible API, as `https://HOST/v1`; `own` is the policy's own "
        "server in observe mode",
    ),
    "model": Setting("text", None, "Model name; default: the first one that the server lists"),
    "key_env": Setting("text", None, "Name of the environment variable that holds the API key"),
    "key_file": Setting("file", None, "File that contains only the API key"),
    "rubric": Setting("file", None, "Markdown file with the rubric; default: a general one"),
    "mode": Setting(
        "text",
        "listwise",
        "One call for each answer, one for the whole group, or two for each pair of answers",
        choices=MODES,
    ),
    "low": Setting("number", 0.0, "Lowest score of the judge's scale; becomes 0", -1000, 1000),
    "high": Setting("number", 10.0, "Highest score of the scale; becomes 1", -1000, 1000),
    "reference": Setting("flag", False, "Show the judge the reference answer of the dataset"),
    "temperature": Setting("number", 0.0, "Sampling temperature of the judge", 0, 2),
    "max_tokens": Setting(
        "int", 2048, "Maximum tokens of a reply, including its reasoning", 16, 65536
    ),
    "extra": Setting("mapping", {}, "Further request fields, such as `reasoning_effort: low`"),
    "timeout": Setting("number", 20.0, "Timeout of one call in seconds", 0.05, 3600),
    "group_seconds": Setting(
        "number", 25.0, "Time limit in seconds for all calls of one group", 0.05, 3600
    ),
    "retries": Setting("int", 3, "Maximum repeated calls per group after errors", 0, 100),
    "concurrency": Setting("int", 8, "Maximum number of simultaneous calls", 1, 1024),
    "breaker_after": Setting("int", 5, "Consecutive failures after which calls stop", 1, 1000),
    "breaker_seconds": Setting("number", 30.0, "Seconds until the next trial call", 0.05, 86400),
    "cache": Setting("flag", True, "Store verdicts on disk and reuse them"),
    "answer_chars": Setting(
        "int",
        8000,
        "Maximum characters of an answer to send; the middle is cut out",
        100,
        1_000_000,
    ),
    "conversation_chars": Setting(
        "int", 16000, "Maximum characters of the conversation to send", 100, 1_000_000
    ),
    "price_in": Setting("number", None, "Price of a million prompt tokens", 0, 1e6),
    "price_out": Setting("number", None, "Price of a million reply tokens", 0, 1e6),
    "spend_limit": Setting(
        "number", None, "Cost of one run above which the judge abstains", 0, 1e9
    ),
}

_RESERVED = frozenset({"model", "messages", "stream", "n", "response_format"})


class JudgeFault(Exception):
    """A judge cannot be used, or has not replied to a call.

    Attributes:
        text: The cause on one line, without the key.
        todo: What the operator can do.
        field: The setting that causes the fault; empty if none does.
        again: Whether the fault may pass by itself.
        wait: Seconds to wait that the endpoint gives; None when it gives none.
        status: Status of the HTTP answer; 0 without one.
    """

    def __init__(
        self,
        text: str,
        todo: str = "",
        *,
        field: str = "",
        again: bool = False,
        wait: float | None = None,
        status: int = 0,
    ) -> None:
        self.text, self.todo, self.field = one_line(text, 300), todo, field
        self.again, self.wait, self.status = again, wait, status
        super().__init__(self.text)

    @property
    def cause(self) -> str:
        """The cause, and what the operator can do."""
        return f"{self.text}. {self.todo}" if self.todo else self.text


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The checked settings of one judge; see `SETTINGS`."""

    name: str
    url: str
    """Base URL without a trailing slash, or `own`."""
    model: str | None
    key_env: str | None
    key_file: Path | None
    rubric: Path | None
    rubric_text: str
    mode: Mode
    low: float
    high: float
    reference: bool
    temperature: float
    max_tokens: int
    extra: dict[str, Any]
    timeout: float
    group_seconds: float
    retries: int
    concurrency: int
    breaker_after: int
    breaker_seconds: float
    cache: bool
    answer_chars: int
    conversation_chars: int
    price_in: float | None
    price_out: float | None
    spend_limit: float | None

    @property
    def priced(self) -> bool:
        """Whether the cost of a call is known."""
        return self.price_in is not None or self.price_out is not None


def options(name: str, values: Mapping[str, Any]) -> Options:
    """Return the options of the part `name`.

    Args:
        name: Name of the part.
        values: All of `SETTINGS`, each of its type.

    Raises:
        SettingError: the settings contradict each other, or the rubric cannot be read.
    """
    if values["key_env"] is not None and values["key_file"] is not None:
        raise SettingError("key_file", "`key_env` and `key_file` exclude each other")
    _check_variable(values["key_env"])
    _check_extra(values["extra"])
    if values["spend_limit"] is not None and not (values["price_in"] or values["price_out"]):
        raise SettingError(
            "spend_limit", "the cost of a call is unknown", "Give price_in and price_out"
        )
    text, rubric = RUBRIC, values["rubric"]
    if rubric is not None and not (text := read_text("rubric", rubric, RUBRIC_LIMIT).strip()):
        todo = "Write what makes an answer good in it, as Markdown, or leave `rubric` out"
        raise SettingError("rubric", f"the rubric {rubric} is empty", todo)
    return Options(name=name, rubric_text=text, **{**values, "url": address(values["url"])})


def address(url: str) -> str:
    """Return the base URL of an API.

    Raises:
        SettingError: the text is not a URL, or contains a password.
    """
    if url == OWN:
        return url
    parts = web_address(url)
    if parts is None:
        raise SettingError(
            "url", "`url` is not the URL of an API", "Give it as https://HOST/v1, or `own`"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise SettingError(
            "url", "`url` must carry no key, password or query", "Name the key with key_env"
        )
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    return f"{parts.scheme}://{parts.netloc}{path or '/v1'}"


def is_local(url: str) -> bool:
    """Return whether a URL is on this machine or a private network, where a key may be optional."""
    host = urlsplit(url).hostname or ""
    try:
        return is_loopback(host) or ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host


def _check_variable(name: str | None) -> None:
    """Refuse a key in the place of a variable's name, without repeating it."""
    if name is None:
        return
    valid = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    if not valid or len(name) > 64:
        raise SettingError(
            "key_env",
            "`key_env` is not the name of an environment variable",
            "Put the key in a variable and give its name, never the key itself",
        )


def _check_extra(extra: Mapping[str, Any]) -> None:
    if reserved := sorted(_RESERVED.intersection(extra)):
        raise SettingError("extra", f"`extra` cannot set {reserved[0]}")
    try:
        msgspec.json.encode(extra)
    except (TypeError, ValueError) as error:
        raise SettingError("extra", f"`extra` cannot be written as JSON: {error}") from error


def find_key(env: str | None, file: Path | None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the key that the settings name; empty if they name none.

    Args:
        env: Name of an environment variable.
        file: File that contains the key.
        environ: Environment variables.

    Raises:
        JudgeFault: the key is unusable; never contains the key.
    """
    if env is not None:
        field, what = "key_env", f"the environment variable {env}"
        todo = "Set it, then start the proxy again"
        key, missing = environ.get(env, "").strip(), "is not set"
    elif file is not None:
        field, what, todo = "key_file", f"the file {file}", "Put the key in it"
        try:
            key, missing = read_small(file).decode().strip(), "is empty"
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            key, missing = "", f"cannot be read: {why}"
    else:
        return ""
    fault = ""
    if not key:
        fault = f"is missing: {what} {missing}"
    elif is_placeholder(key):
        fault = f"is a placeholder: {what} holds no real key"
    elif not key.isascii() or not key.isprintable() or " " in key:
        fault = f"is invalid: {what} contains spaces or special characters"
    if fault:
        raise JudgeFault(f"the judge's key {fault}", todo, field=field)
    return key
