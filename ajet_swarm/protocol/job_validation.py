"""Validation of a job before it is sent: the line of each key, unknown keys, impossible values."""

import contextlib
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ajet_swarm.common.lazy_yaml import yaml
from ajet_swarm.common.secrets import names_secret
from ajet_swarm.common.text import closest
from ajet_swarm.common.yaml_positions import YamlError, compose, positions, syntax_error
from ajet_swarm.protocol.job import Job, JobError, get, load_job
from ajet_swarm.protocol.job_schema import KNOWN
from ajet_swarm.protocol.job_secrets import yaml_problem

MAX_CHARS: Final = 1_000_000
"""Maximum length of a job in characters; AgentJet's fully expanded tree has about 29,000."""
MAX_DEPTH: Final = 50

PROMPT: Final = "ajet.data.max_prompt_length"
RESPONSE: Final = "ajet.data.max_response_length"
TURN: Final = "ajet.rollout.max_response_length_in_one_turn"
WINDOW: Final = "ajet.rollout.max_model_len"
LENGTHS: Final = (PROMPT, RESPONSE, TURN, WINDOW)

_OPEN: Final = (
    "ajet.task_reader",
    "ajet.interchange_server",
    "ajet.task_judge",
    "ajet.task_runner",
    "ajet.debug",
    "ajet.rollout.multi_turn",
    "ajet.rollout.val_kwargs",
    "ajet.trainer_common.fsdp_config",
    "ajet.teacher_model",
    "ajet.opd",
)
"""Subtrees of AgentJet whose keys are not checked."""
_TOP: Final = """
ajet actor_rollout_ref data critic custom_reward_function reward_model sandbox_fusion reward
algorithm trainer global_profiler transfer_queue ray_kwargs defaults hydra
"""
SECTIONS: Final = frozenset(_TOP.split())
"""Top-level keys of a whole tree."""
_WHOLE: Final = frozenset({"ajet", "actor_rollout_ref", "trainer", "data"})
"""Sections that a whole tree has, and a job written by hand lacks."""
_COMPOSE: Final = ("ajet", "defaults", "hydra")
"""Sections without values of the trainer."""
_RANK: Final = "ajet.lora.lora_rank"
_LORA: Final = {"ajet.lora.load_format": "safetensors", "ajet.lora.layered_summon": True}
_PORT: Final = "ajet.interchange_server.interchange_server_port"


@dataclass(frozen=True, slots=True)
class Notice:
    """A remark about a job that can be sent nevertheless."""

    text: str
    line: int = 0
    """Counted from 1; 0 when the remark has no line."""
    of_agentjet: bool = False
    """The remark concerns AgentJet servers, and is not shown for the embedded engine."""


@dataclass(frozen=True, slots=True)
class CheckedJob:
    """A job that can be sent."""

    job: Job
    notices: tuple[Notice, ...]
    lines: Mapping[str, int]
    """Dotted path of each key -> its line, counted from 1."""


def check_job(text: str, where: str = "job") -> CheckedJob:
    """Parse and check a job; return it with notices about questionable values.

    Args:
        text: The YAML.
        where: Name of the text in errors, as a path.

    Raises:
        JobError: The job cannot be sent; names the line and the key.
    """
    lines = _lines(text, where)
    job = load_job(text, where, lines)
    _check_lengths(job, where, lines)
    return CheckedJob(job, (*_unknown(lines), *_questionable(job, lines)), lines)


def _lines(text: str, where: str) -> dict[str, int]:
    """Return the line of every key; refuse aliases, deep nesting and oversized texts."""
    if len(text) > MAX_CHARS:
        raise JobError(f"longer than {MAX_CHARS} characters", where, "Is this a job?")
    try:
        return positions(_root(text, where), lambda name: not names_secret(name))
    except (YamlError, yaml.YAMLError) as error:
        fault = error if isinstance(error, YamlError) else syntax_error(error)
        place = f"{where}:{fault.line}" if fault.line else where
        problem = f"not YAML: {yaml_problem(fault)}" if fault.is_syntax else fault.problem
        todo = "Correct the line" if fault.is_syntax else "Rename it, or take it out"
        raise JobError(problem, place, todo) from None


def _root(text: str, where: str) -> Any:
    """Return the root node of the YAML, see `_lines`.

    The loader in C takes a tenth of the time; errors have the words of the other one.
    """
    if (quick := getattr(yaml, "CSafeLoader", None)) is not None:
        with contextlib.suppress(yaml.YAMLError):
            _check_events(text, where, quick)  # it composes deep nesting without a limit
            return yaml.compose(text, Loader=quick)
    _check_events(text, where, yaml.SafeLoader)
    return compose(text)


def _check_events(text: str, where: str, loader: Any) -> None:
    """Refuse aliases and deep nesting before the document is composed."""
    depth = 0
    anchors: set[str | None] = set()
    for event in yaml.parse(text, Loader=loader):
        mark = event.start_mark
        place = f"{where}:{mark.line + 1}" if mark is not None else where
        if isinstance(event, yaml.AliasEvent):
            # without an anchor of this name it may be an unquoted password
            name = event.anchor if event.anchor in anchors else "..."
            todo = "Write the part out; put a value that begins with `*` in quotes"
            raise JobError(f"`*{name}` repeats a part", place, todo)
        anchors.add(getattr(event, "anchor", None))
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise JobError(f"nested deeper than {MAX_DEPTH} levels", place)


def _check_lengths(job: Job, where: str, lines: Mapping[str, int]) -> None:
    prompt, response, turn, window = (get(job, path) for path in LENGTHS)
    if prompt and response and window and prompt + response > window:
        raise JobError(
            f"`{PROMPT}` + `{RESPONSE}` is {prompt + response}, more than `{WINDOW}` {window}",
            _place(where, lines, WINDOW),
            "Prompt and response must fit into the model's window together",
        )
    if response and turn and turn > response:
        raise JobError(
            f"`{TURN}` {turn} is more than `{RESPONSE}` {response}",
            _place(where, lines, TURN),
            "One turn is a part of the response",
        )


def _place(where: str, lines: Mapping[str, int], path: str) -> str:
    return f"{where}:{lines[path]}" if path in lines else where


def _unknown(lines: Mapping[str, int]) -> Iterator[Notice]:
    """Yield a notice for each unknown key; keys below an unknown one are skipped.

    A whole tree was written by AgentJet and has keys that this program does not know. There an
    unknown key gets a notice only when a known one is similar.
    """
    whole = lines.keys() >= _WHOLE
    reported: list[str] = []
    for path, line in lines.items():
        skipped = (*reported, *_OPEN)
        if any(path == above or path.startswith(f"{above}.") for above in skipped):
            continue
        top, _, rest = path.partition(".")
        if top != "ajet":
            known = rest or top in SECTIONS
        else:
            known = not rest or any(key == path or key.startswith(f"{path}.") for key in KNOWN)
        if known:
            continue
        reported.append(path)
        suggestion = _suggestion(path, SECTIONS if top != "ajet" else KNOWN, lines)
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
    present = [path for path in LENGTHS if get(job, path) is not None]
    if present and len(present) < len(LENGTHS):
        missing = ", ".join(path.rpartition(".")[2] for path in LENGTHS if path not in present)
        yield Notice(
            f"the four lengths belong together; {missing}: the server default is used",
            lines.get(present[0], 0),
            of_agentjet=True,
        )
    beside = [name for name in job if name in SECTIONS and name not in _COMPOSE]
    if beside:
        yield Notice(
            f"beside `ajet` there is {', '.join(map(str, beside[:4]))}: a server refuses values "
            "there that contradict those of `ajet`",
            lines.get(str(beside[0]), 0),
        )
    if not isinstance(get(job, _PORT, 0), int):
        yield Notice(
            f"`{_PORT}` is {get(job, _PORT)!r:.40}: an AgentJet server needs a number",
            lines.get(_PORT, 0),
        )
    for path, problem in lora_problems(job):
        yield Notice(problem, lines.get(path, lines.get(_RANK, 0)))


def lora_problems(job: Job) -> Iterator[tuple[str, str]]:
    """Yield the path of each setting that does not suit a LoRA rank, and what is needed."""
    rank = get(job, _RANK)
    for path, value in _LORA.items() if isinstance(rank, int) and rank > 0 else ():
        if get(job, path) != value:
            yield path, f"with a LoRA rank AgentJet needs `{path}: {str(value).lower()}`"
