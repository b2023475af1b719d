"""The probe set: held-out prompts from a file, or the shipped ones for the embedded policy."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

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
_TODO = (
    'Each line is as {"prompt": "...", "reference": "..."}; docs/guide/progress.md has all fields'
)

_Text = Annotated[str, msgspec.Meta(max_length=LONGEST)] | int | float | None


class _ProbeLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line; `prompt` and `reference` may have the names that datasets give them."""

    id: str | int = ""
    messages: list[dict[str, Any]] | None = None
    prompt: _Text = None
    query: _Text = None
    question: _Text = None
    reference: _Text = None
    answer: _Text = None


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
            prompt = _prompt(line, number)
            for what, value in (("prompt", key_of(prompt)), ("id", prompt.id)):
                if (earlier := lines.setdefault((what, value), number)) != number:
                    raise ValueError(f"the {what} is that of line {earlier}")
            if len(prompts) == MOST_PROMPTS:
                raise ValueError(f"a probe set has at most {MOST_PROMPTS} prompts")
        except (ValueError, RecursionError) as error:
            raise ProbeSetError(str(error), f"{path}:{number}", _TODO) from None
        prompts.append(prompt)
    if not prompts:
        raise ProbeSetError("the probe set is empty", str(path), _TODO)
    return tuple(prompts)


def _prompt(line: str, number: int) -> ProbePrompt:
    """Return the prompt of a line.

    Raises:
        ValueError: It is no prompt.
    """
    row = msgspec.json.decode(line, type=_ProbeLine)
    before: tuple[dict[str, Any], ...] = ()
    text = _one(prompt=row.prompt, query=row.query, question=row.question)
    if row.messages is not None:
        if text:
            raise ValueError("`messages` and a prompt are given: give one of them")
        if len(line) > LONGEST:
            raise ValueError(f"the line has over {LONGEST} characters")
        if any(not isinstance(message.get("role"), str) for message in row.messages):
            raise ValueError("`messages` has a message without a `role`")
        *earlier, last = row.messages or [{}]
        if last.get("role") != "user":
            raise ValueError("`messages` does not end with a user message")
        before, text = tuple(earlier), content_text(last.get("content"))
    if not normalised(text):
        raise ValueError("the line has no prompt")
    reference = _one(reference=row.reference, answer=row.answer)
    name = str(row.id).strip()[:100] or f"line-{number}"
    return ProbePrompt(id=name, prompt=text, before=before, reference=reference)


def _one(**fields: str | float | None) -> str:
    """Return the text of the only field that is set; empty if none is."""
    present = [name for name, value in fields.items() if value is not None]
    if len(present) > 1:
        raise ValueError(f"`{present[0]}` and `{present[1]}` are two names of one field")
    return f"{fields[present[0]]}" if present else ""


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
