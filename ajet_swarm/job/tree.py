"""Reading and checking a job: the line of each key, unknown keys, impossible values."""

import contextlib
import copy
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.lazy_yaml import yaml
from ajet_swarm.common.secrets import names_secret
from ajet_swarm.common.text import closest
from ajet_swarm.common.yaml_positions import YamlError, compose, construct, positions
from ajet_swarm.job.schema import (
    CHECKED,
    KNOWN,
    LEARNING_RATE,
    LENGTHS,
    LORA,
    MODEL,
    OPEN,
    PORT,
    PROMPT,
    RANK,
    RESPONSE,
    SECTIONS,
    TEMPERATURE,
    TURN,
    WINDOW,
    Key,
)
from ajet_swarm.protocol.job_secrets import quoted, yaml_problem

Job = dict[str, Any]
"""A tree of plain values with one root, `ajet`."""

MAX_CHARS: Final = 1_000_000
"""Maximum length of a job in characters; AgentJet's fully expanded tree has about 29,000."""
MAX_DEPTH: Final = 50

_WHOLE: Final = frozenset({"ajet", "actor_rollout_ref", "trainer", "data"})
"""Sections that a whole tree has, and a job written by hand lacks."""
_COMPOSE: Final = ("ajet", "defaults", "hydra")
"""Sections without values of the trainer."""


class JobError(UsageError):
    """A job is invalid, or its file cannot be used."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A remark about a job that can be sent nevertheless."""

    text: str
    line: int = 0
    """Counted from 1; 0 when the remark has no line."""
    of_agentjet: bool = False
    """The remark concerns AgentJet servers, and is not shown for the embedded engine."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


@dataclass(frozen=True, slots=True)
class CheckedJob:
    """A job that can be sent."""

    job: Job
    notices: tuple[Notice, ...]
    lines: Mapping[str, int]
    """Dotted path of each key -> its line, counted from 1."""

    def notices_for(self, *, embedded: bool) -> tuple[Notice, ...]:
        """Return the notices that concern the embedded engine, or an AgentJet server."""
        return tuple(notice for notice in self.notices if not (embedded and notice.of_agentjet))


def dump_job(job: Mapping[str, Any]) -> str:
    """Return the job as YAML, with the keys in their order."""
    return str(yaml.safe_dump(copy.deepcopy(dict(job)), sort_keys=False, allow_unicode=True))


def get(job: Mapping[str, Any], path: str, default: Any = None) -> Any:
    """Return the value at a dotted path; `default` when it is missing or null."""
    value: Any = job
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return default if value is None else value


def put(job: Job, path: str, value: Any) -> None:
    """Set the value at a dotted path; missing sections are created."""
    *sections, last = path.split(".")
    for key in sections:
        inner = job.get(key)
        if not isinstance(inner, dict):
            inner = job[key] = {}
        job = inner
    job[last] = value


def flat(job: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted path and value of every leaf; lists and empty mappings are leaves.

    Args:
        job: A tree.
        above: Prefix of all paths, ending with a dot.
    """
    for key, value in job.items():
        path = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{path}.")
        else:
            yield path, value


def load_job(text: str, where: str = "job") -> Job:
    """Parse a job and check the values of known keys; unknown keys are retained.

    Args:
        text: The YAML.
        where: Name of the text in errors, as a path.

    Raises:
        JobError: it is not YAML, not a mapping with `ajet`, or has an invalid value; gives the
            place.
    """
    return _read(text, where)[0]


def check_job(text: str, where: str = "job") -> CheckedJob:
    """Parse and check a job; return it with notices about questionable values.

    Args:
        text: The YAML.
        where: Name of the text in errors, as a path.

    Raises:
        JobError: The job cannot be sent; names the line and the key.
    """
    job, lines = _read(text, where)
    _check_lengths(job, where, lines)
    return CheckedJob(job, (*_unknown(lines), *_questionable(job, lines)), lines)


def place(where: str, lines: Mapping[str, int], *paths: str) -> str:
    """Return where the first of some keys stands, as `job.yaml:3`; `where` if none is there."""
    return next((f"{where}:{lines[path]}" for path in paths if path in lines), where)


# --- reading -------------------------------------------------------------------------------------


def parse(text: str, where: str, *, strict: bool = True) -> tuple[Any, dict[str, int]]:
    """Return the value of a YAML text, and the line of every key, by dotted path.

    The loader in C takes a tenth of the time; errors have the words of the other one.

    Args:
        text: The YAML.
        where: Name of the text in errors, as a path.
        strict: Refuse aliases and repeated keys, which a server accepts; else return no lines.

    Raises:
        JobError: it is not YAML, too long, or nested too deeply; gives the place.
    """
    if len(text) > MAX_CHARS:
        raise JobError(f"longer than {MAX_CHARS} characters", where, "Is this a job?")
    root = None
    try:
        try:
            loader = getattr(yaml, "CSafeLoader", None) or yaml.SafeLoader
            _check_events(text, where, loader, strict)  # nothing else limits the nesting
            root = yaml.compose(text, Loader=loader)
        except yaml.YAMLError:
            root = compose(text)
        lines = positions(root, lambda name: not names_secret(name)) if strict else {}
        return construct(root) if root is not None else None, lines
    except YamlError as fault:
        at = f"{where}:{fault.line}" if fault.line else where
        if fault.is_syntax:
            raise JobError(f"not YAML: {yaml_problem(fault)}", at, "Correct the line") from None
        raise JobError(fault.problem, at, "Rename it, or take it out") from None


def _read(text: str, where: str) -> tuple[Job, dict[str, int]]:
    """Return a job with its values checked, and the line of every key."""
    job, lines = parse(text, where)
    if not isinstance(job, dict) or not isinstance(job.get("ajet"), dict):
        raise JobError(
            "there is no mapping `ajet` at the top",
            where,
            "Put everything under `ajet:`, as in `ajet: {model: {path: ...}}`",
        )
    _check_values(job, where, lines)
    return job, lines


def _check_events(text: str, where: str, loader: Any, strict: bool) -> None:
    """Refuse aliases and deep nesting before the document is composed."""
    depth = 0
    anchors: set[str | None] = set()
    for event in yaml.parse(text, Loader=loader):
        mark = event.start_mark
        at = f"{where}:{mark.line + 1}" if mark is not None else where
        if strict and isinstance(event, yaml.AliasEvent):
            # without an anchor of this name it may be an unquoted password
            name = event.anchor if event.anchor in anchors else "..."
            todo = "Write the part out; put a value that begins with `*` in quotes"
            raise JobError(f"`*{name}` repeats a part", at, todo)
        anchors.add(getattr(event, "anchor", None))
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise JobError(f"nested deeper than {MAX_DEPTH} levels", at)


# --- values --------------------------------------------------------------------------------------


def _check_values(job: Job, where: str, lines: Mapping[str, int]) -> None:
    """Check the values of known keys; convert numbers."""
    for key in CHECKED:
        if (value := get(job, key.path)) is not None:
            put(job, key.path, checked(key, value, place(where, lines, key.path)))
    for path in (LEARNING_RATE, TEMPERATURE):
        if get(job, path) == 0:
            raise JobError(f"`{path}` is 0: nothing would be learned", place(where, lines, path))
    model = get(job, MODEL)
    if model is not None and not (isinstance(model, str) and model.strip()):
        at = place(where, lines, MODEL)
        raise JobError(f"`{MODEL}` is {quoted(model)}", at, "Give its path or name")


def checked(key: Key, value: Any, where: str) -> Any:
    """Return the value of a key, a number converted: YAML reads `5e-4` as text.

    Raises:
        JobError: the value is outside of the bounds of the key.
    """
    if key.choices and value not in key.choices:
        todo = f"Give one of: {', '.join(key.choices)}"
        raise JobError(f"`{key.path}` is {quoted(value)}", where, todo)
    if key.least is None:
        return value
    number = float("nan")
    if not isinstance(value, bool):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            number = float(value)
    unfit = not key.least <= number < float("inf") or (key.whole and not number.is_integer())
    if unfit:
        todo = f"Give {'a whole' if key.whole else 'a'} number of at least {key.least:g}"
        raise JobError(f"`{key.path}` is {quoted(value)}", where, todo)
    if number > key.most:
        raise JobError(f"`{key.path}` is {number:g}", where, f"At most {key.most:g}")
    return int(number) if key.whole else number


def _check_lengths(job: Job, where: str, lines: Mapping[str, int]) -> None:
    prompt, response, turn, window = (get(job, path) for path in LENGTHS)
    if prompt and response and window and prompt + response > window:
        raise JobError(
            f"`{PROMPT}` + `{RESPONSE}` is {prompt + response}, more than `{WINDOW}` {window}",
            place(where, lines, WINDOW),
            "Prompt and response must fit into the model's window together",
        )
    if response and turn and turn > response:
        raise JobError(
            f"`{TURN}` {turn} is more than `{RESPONSE}` {response}",
            place(where, lines, TURN),
            "One turn is a part of the response",
        )


# --- notices -------------------------------------------------------------------------------------


def _unknown(lines: Mapping[str, int]) -> Iterator[Notice]:
    """Yield a notice for each unknown key; keys below an unknown one are skipped.

    A whole tree was written by AgentJet and has keys that this program does not know. There an
    unknown key gets a notice only when a known one is similar.
    """
    whole = lines.keys() >= _WHOLE
    skipped = [*OPEN]
    for path, line in lines.items():
        top, _, rest = path.partition(".")
        if f"{path}.".startswith(tuple(f"{above}." for above in skipped)):
            continue
        known = KNOWN if top == "ajet" else SECTIONS
        if path in known or (rest and top in SECTIONS - {"ajet"}):
            continue
        if any(key.startswith(f"{path}.") for key in known):
            continue
        skipped.append(path)
        suggestion = _suggestion(path, known, lines)
        if suggestion or not whole:
            yield Notice(f"unknown key `{path}`{suggestion}", line)


def _suggestion(name: str, known: frozenset[str], present: Container[str]) -> str:
    """Return a suggestion: the known key of this name elsewhere, else the most similar sibling.

    Keys that the job contains are never suggested: the unknown key means something else.
    """
    section, _, last = name.rpartition(".")
    elsewhere = [key for key in known if key.rpartition(".")[2] == last and key not in present]
    if len(elsewhere) == 1:
        return f": is `{elsewhere[0]}` meant?"
    prefix = f"{section}." if section else ""
    siblings = {key[len(prefix) :].partition(".")[0] for key in known if key.startswith(prefix)}
    absent = [sibling for sibling in siblings if prefix + sibling not in present]
    similar = closest(last, absent, cutoff=0.75)
    return f": is `{prefix}{similar[0]}` meant?" if similar else ""


def _questionable(job: Job, lines: Mapping[str, int]) -> Iterator[Notice]:
    """Yield a notice for each value that a server may ignore or refuse."""
    missing = [path.rpartition(".")[2] for path in LENGTHS if get(job, path) is None]
    if 0 < len(missing) < len(LENGTHS):
        line = next(lines.get(path, 0) for path in LENGTHS if get(job, path) is not None)
        text = f"the four lengths belong together; {', '.join(missing)}: the server default is used"
        yield Notice(text, line, of_agentjet=True)
    beside = [str(name) for name in job if name in SECTIONS and name not in _COMPOSE]
    if beside:
        yield Notice(
            f"beside `ajet` there is {', '.join(beside[:4])}: a server refuses values "
            "there that contradict those of `ajet`",
            lines.get(beside[0], 0),
        )
    if not isinstance(port := get(job, PORT, 0), int):
        text = f"`{PORT}` is {port!r:.40}: an AgentJet server needs a number"
        yield Notice(text, lines.get(PORT, 0))
    for path, problem in lora_problems(job):
        yield Notice(problem, lines.get(path, lines.get(RANK, 0)))


def lora_problems(job: Job) -> Iterator[tuple[str, str]]:
    """Yield the path of each setting that does not suit a LoRA rank, and what is needed."""
    rank = get(job, RANK)
    for path, value in LORA.items() if isinstance(rank, int) and rank > 0 else ():
        if get(job, path) != value:
            yield path, f"with a LoRA rank AgentJet needs `{path}: {str(value).lower()}`"
