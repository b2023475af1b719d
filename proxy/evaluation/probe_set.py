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
        for one in self.prompts:
            total.update(json.dumps([one.id, one.prompt, one.reference, *one.before]).encode())
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
        raise ProbeSetError(
            "the probe set is not UTF-8 text", f"{path}, byte {error.start}", "Save it as UTF-8"
        ) from None
    except OSError as error:
        raise ProbeSetError(
            f"the probe set cannot be read: {error.strerror or error}",
            str(path),
            "Set `probe.file` to a JSONL file",
        ) from error
    prompts: list[ProbePrompt] = []
    first_lines: dict[str, int] = {}
    ids: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        one = _prompt(line, where, number)
        for key, lines, what in (
            (key_of(one), first_lines, "prompt"),
            (one.id, ids, "id"),
        ):
            if key in lines:
                raise ProbeSetError(
                    f"the {what} is that of line {lines[key]}", where, f"Give each {what} once"
                )
            lines[key] = number
        prompts.append(one)
        if len(prompts) > MOST_PROMPTS:
            raise ProbeSetError(
                f"a probe set has at most {MOST_PROMPTS} prompts", where, "Remove some"
            )
    if not prompts:
        raise ProbeSetError(
            "the probe set is empty",
            str(path),
            'Add lines as {"prompt": "...", "reference": "..."}',
        )
    return tuple(prompts)


def _prompt(line: str, where: str, number: int) -> ProbePrompt:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProbeSetError(f"the line is not JSON: {error}", where, "Repair the line") from None
    if not isinstance(row, dict):
        raise ProbeSetError("the line is not a JSON object", where, 'Write {"prompt": "..."}')
    unknown = [name for name in row if name not in _KNOWN]
    if unknown:
        raise ProbeSetError(
            f"there is no field `{unknown[0]:.60}`", where, f"Known: {', '.join(sorted(_KNOWN))}"
        )
    before: tuple[dict[str, Any], ...] = ()
    if "messages" in row:
        before, prompt = _conversation(row, where)
    else:
        prompt = _text(row, _PROMPT_FIELDS, where)
    if not prompt.strip() or not normalised(prompt):
        raise ProbeSetError("the line has no prompt", where, f"Give `{_PROMPT_FIELDS[0]}`")
    name = row.get("id", f"line-{number}")
    if not isinstance(name, str | int) or isinstance(name, bool) or not str(name).strip():
        raise ProbeSetError("`id` is neither a text nor a number", where, "Give a text, or none")
    return ProbePrompt(
        id=str(name)[:100],
        prompt=prompt,
        before=before,
        reference=_text(row, _REFERENCE_FIELDS, where),
    )


def _conversation(row: Mapping[str, Any], where: str) -> tuple[tuple[dict[str, Any], ...], str]:
    """Return the messages before the last one, and the text of that one."""
    messages = row["messages"]
    if any(name in row for name in _PROMPT_FIELDS):
        raise ProbeSetError("`messages` and `prompt` are given", where, "Give one of them")
    if not isinstance(messages, list) or not all(
        isinstance(one, dict) and isinstance(one.get("role"), str) for one in messages
    ):
        raise ProbeSetError("`messages` is not a list of messages", where, "Each has a `role`")
    if not messages or messages[-1]["role"] != "user":
        raise ProbeSetError("`messages` does not end with a user message", where, "Cut the rest")
    if len(json.dumps(messages)) > LONGEST:
        raise ProbeSetError(f"`messages` has over {LONGEST} characters", where, "Shorten it")
    return tuple(messages[:-1]), content_text(messages[-1].get("content"))


def with_prompts(
    probe_set: ProbeSet | None, prompts: Sequence[ProbePrompt]
) -> tuple[ProbePrompt, ...]:
    """Return the prompts of a probe set with others added.

    Raises:
        ProbeSetError: A prompt is in it already.
    """
    known = {key_of(one) for one in probe_set.prompts} if probe_set is not None else set()
    for one in prompts:
        if key_of(one) in known:
            raise ProbeSetError("the prompt is in the probe set already", one.id, "Leave it out")
        known.add(key_of(one))
    return (*(probe_set.prompts if probe_set is not None else ()), *prompts)


def write_prompts(file: Path, prompts: Sequence[ProbePrompt]) -> None:
    """Write a probe set, atomically.

    Raises:
        ProbeSetError: It cannot be written; the earlier file is intact.
    """
    lines = []
    for one in prompts:
        row: dict[str, Any] = {"id": one.id, "prompt": one.prompt}
        if one.before:
            last = {"role": "user", "content": one.prompt}
            row = {"id": one.id, "messages": [*one.before, last]}
        if one.reference:
            row["reference"] = one.reference
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    try:
        replace_file(file, "".join(lines).encode("utf-8", "surrogatepass"), 0o600)
    except OSError as error:
        raise ProbeSetError(
            f"the probe set cannot be written: {error}",
            str(file),
            "Free space, or correct its mode",
        ) from error


def _text(row: Mapping[str, Any], names: tuple[str, ...], where: str) -> str:
    """Return the text of the first of these fields that the row has; empty without one."""
    present = [name for name in names if row.get(name) is not None]
    if len(present) > 1:
        raise ProbeSetError(
            f"`{present[0]}` and `{present[1]}` are two names of one field", where, "Give one"
        )
    if not present:
        return ""
    value = row[present[0]]
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = f"{value}"
    if not isinstance(value, str):
        raise ProbeSetError(f"`{present[0]}` is not a text", where, "Give a text")
    if len(value) > LONGEST:
        raise ProbeSetError(
            f"`{present[0]}` has {len(value)} characters, at most {LONGEST} are allowed", where,
            "Shorten it",
        )  # fmt: skip
    return value
