"""The probe set: held-out prompts from a file, or the shipped ones for the embedded policy."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import content_text
from core.events import ProbePrompt
from core.whole_file import replace_file
from proxy.held_out import key_of, normalised

SHIPPED = "shipped"
OWN_FILE = "probe_set.jsonl"
"""Name of the file in the home with the prompts that the operator pinned."""
MOST_PROMPTS = 2_000
LONGEST = 20_000
"""Maximum number of characters of a prompt or a reference."""
_PROMPT_FIELDS = ("prompt", "query", "question")
_REFERENCE_FIELDS = ("reference", "answer")
_KNOWN = frozenset({"id", "messages", *_PROMPT_FIELDS, *_REFERENCE_FIELDS})


class ProbeSetError(AjetError):
    """A probe set cannot be used; names file, line and field."""


@dataclass(frozen=True, slots=True)
class ProbeSet:
    """Held-out prompts, in order."""

    source: str
    """`shipped`, or the path of the file."""
    prompts: tuple[ProbePrompt, ...]

    @property
    def version(self) -> str:
        """Hash of the prompts, their references and their ids, in order.

        Looks of one version are paired by the ids, so another id is another prompt.
        """
        total = hashlib.sha256()
        for prompt in self.prompts:
            parts = [prompt.id, prompt.prompt, prompt.reference, *prompt.before]
            total.update(json.dumps(parts).encode())
        return total.hexdigest()[:12]


@cache
def shipped_probe_set() -> ProbeSet:
    """Return 32 facts and 32 sums, which the embedded policy answers and the mock user never asks
    by default."""
    file = Path(__file__).parent / "data" / "probe_set.jsonl"
    return ProbeSet(SHIPPED, read_prompts(file))


def load_probe_set(file: str) -> ProbeSet:
    """Return the probe set of a JSONL file.

    Each line is an object with `prompt` (or `query`, `question`), or with `messages` that end with
    a user message; and optionally `id` and `reference` (or `answer`).

    Raises:
        ProbeSetError: The file cannot be read, is empty or has an invalid line.
    """
    path = Path(file).expanduser().absolute()
    return ProbeSet(str(path), read_prompts(path))


def read_prompts(path: Path) -> tuple[ProbePrompt, ...]:
    """Return the prompts of a JSONL file.

    Raises:
        ProbeSetError: As of `load_probe_set`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"{path}, byte {error.start}"
        raise ProbeSetError("the probe set is not UTF-8 text", where, "Save it as UTF-8") from None
    except OSError as error:
        cause = f"the probe set cannot be read: {error.strerror or error}"
        raise ProbeSetError(cause, str(path), "Set `probe.file` to a JSONL file") from error
    prompts: list[ProbePrompt] = []
    lines: dict[tuple[str, str], int] = {}
    """Line of each prompt and of each id."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            prompts.append(_prompt(line, number, lines))
        except _Fault as fault:
            raise ProbeSetError(fault.what, f"{path}:{number}", fault.todo) from None
    if not prompts:
        todo = 'Add lines as {"prompt": "...", "reference": "..."}'
        raise ProbeSetError("the probe set is empty", str(path), todo)
    return tuple(prompts)


class _Fault(AjetError):
    """A line is no prompt; without the file."""


def _prompt(line: str, number: int, lines: dict[tuple[str, str], int]) -> ProbePrompt:
    """Return the prompt of a line, and note its number.

    Args:
        line: The line.
        number: Its number.
        lines: The number of the line by prompt and by id of those before.

    Raises:
        _Fault: It is no prompt, or a second one.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _Fault(f"the line is not JSON: {error}", todo="Repair the line") from None
    if not isinstance(row, dict):
        raise _Fault("the line is not a JSON object", todo='Write {"prompt": "..."}')
    if unknown := [name for name in row if name not in _KNOWN]:
        todo = f"Known: {', '.join(sorted(_KNOWN))}"
        raise _Fault(f"there is no field `{unknown[0]:.60}`", todo=todo)
    before: tuple[dict[str, Any], ...] = ()
    if "messages" in row:
        before, text = _conversation(row)
    else:
        text = _text(row, _PROMPT_FIELDS)
    if not normalised(text):
        raise _Fault("the line has no prompt", todo=f"Give `{_PROMPT_FIELDS[0]}`")
    name = row.get("id", f"line-{number}")
    if not isinstance(name, str | int) or isinstance(name, bool) or not str(name).strip():
        raise _Fault("`id` is neither a text nor a number", todo="Give a text, or none")
    reference = _text(row, _REFERENCE_FIELDS)
    prompt = ProbePrompt(id=str(name)[:100], prompt=text, before=before, reference=reference)
    for what, value in (("prompt", key_of(prompt)), ("id", prompt.id)):
        if earlier := lines.get((what, value)):
            raise _Fault(f"the {what} is that of line {earlier}", todo=f"Give each {what} once")
        lines[what, value] = number
    if len(lines) > 2 * MOST_PROMPTS:
        raise _Fault(f"a probe set has at most {MOST_PROMPTS} prompts", todo="Remove some")
    return prompt


def _conversation(row: Mapping[str, Any]) -> tuple[tuple[dict[str, Any], ...], str]:
    """Return the messages before the last one, and the text of that one."""
    messages = row["messages"]
    if any(name in row for name in _PROMPT_FIELDS):
        raise _Fault("`messages` and `prompt` are given", todo="Give one of them")
    if not isinstance(messages, list) or not all(
        isinstance(message, dict) and isinstance(message.get("role"), str) for message in messages
    ):
        raise _Fault("`messages` is not a list of messages", todo="Each has a `role`")
    if not messages or messages[-1]["role"] != "user":
        raise _Fault("`messages` does not end with a user message", todo="Cut the rest")
    if len(json.dumps(messages)) > LONGEST:
        raise _Fault(f"`messages` has over {LONGEST} characters", todo="Shorten it")
    return tuple(messages[:-1]), content_text(messages[-1].get("content"))


def _text(row: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Return the text of the first of these fields that the row has; empty without one."""
    present = [name for name in names if row.get(name) is not None]
    if not present:
        return ""
    if len(present) > 1:
        both = f"`{present[0]}` and `{present[1]}`"
        raise _Fault(f"{both} are two names of one field", todo="Give one")
    value = row[present[0]]
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = f"{value}"
    if not isinstance(value, str):
        raise _Fault(f"`{present[0]}` is not a text", todo="Give a text")
    if len(value) > LONGEST:
        cause = f"`{present[0]}` has {len(value)} characters, at most {LONGEST} are allowed"
        raise _Fault(cause, todo="Shorten it")
    return value


def with_prompts(
    probe_set: ProbeSet | None, prompts: Sequence[ProbePrompt]
) -> tuple[ProbePrompt, ...]:
    """Return the prompts of a probe set with others added.

    Raises:
        ProbeSetError: A prompt is in it already.
    """
    combined = (*(probe_set.prompts if probe_set is not None else ()), *prompts)
    known: set[str] = set()
    for prompt in combined:
        if (key := key_of(prompt)) in known:
            raise ProbeSetError("the prompt is in the probe set already", prompt.id, "Leave it out")
        known.add(key)
    return combined


def write_prompts(file: Path, prompts: Sequence[ProbePrompt]) -> None:
    """Write a probe set, atomically.

    Raises:
        ProbeSetError: It cannot be written; the earlier file is intact.
    """
    lines = []
    for prompt in prompts:
        row: dict[str, Any] = {"id": prompt.id, "prompt": prompt.prompt}
        if prompt.before:
            last = {"role": "user", "content": prompt.prompt}
            row = {"id": prompt.id, "messages": [*prompt.before, last]}
        if prompt.reference:
            row["reference"] = prompt.reference
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    try:
        replace_file(file, "".join(lines).encode("utf-8", "surrogatepass"), 0o600)
    except OSError as error:
        cause = f"the probe set cannot be written: {error}"
        raise ProbeSetError(cause, str(file), "Free space, or correct its mode") from error
