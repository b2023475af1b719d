"""The job form: conversion between fields and YAML, differences, the edited draft."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import lru_cache
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import one_line
from ajet_swarm.job.schema import (
    BATCH,
    EXPERIMENT,
    KEYS,
    KL,
    LEARNING_RATE,
    MODEL,
    REPEAT,
    REQUIRED,
    TEMPERATURE,
)
from ajet_swarm.job.server import ModelError, for_server, gpus_text
from ajet_swarm.job.tree import (
    CheckedJob,
    Job,
    JobError,
    Notice,
    check_job,
    checked,
    dump_job,
    get,
    load_job,
    put,
)
from ajet_swarm.protocol.job_secrets import MASK, masked, secret_part, without_secrets
from console.models.job_fields import BY_NAME, FIELDS, RULES, Field, FieldError, field_of
from core.control_payloads import JobInfo
from core.jobs import MISSING, Change, changes, same, votes_text

__all__ = ["Change", "CheckedJob", "ModelError", "Notice", "check_job", "for_server", "masked"]


def shown(value: Any) -> str:
    """Return a value as an operator types it."""
    if value is MISSING:
        return "–"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return one_line(str(value), 200)


def values(text: str) -> dict[str, str]:
    """Return the text of each field for a job; empty where the job sets nothing.

    Raises:
        JobError: the text is not a job.
    """
    job = load_job(text)
    return {field.name: shown(get(job, field.path, "")) for field in FIELDS}


def with_values(text: str, new_values: Mapping[str, str]) -> str:
    """Return the job with other values in its fields; the same text when nothing differs.

    Raises:
        FieldError: a field is invalid.
        JobError: the text is not a job.
    """
    job, before = load_job(text), values(text)
    changed = False
    for name, typed in new_values.items():
        field = BY_NAME[name]
        if typed.strip() == before[name]:
            continue
        value = _read(field, typed.strip())
        if value is None:
            _drop(job, field.path)
        else:
            put(job, field.path, value)
        changed = True
    return dump_job(job) if changed else text


def needs_text(text: str) -> str:
    """Return what a job trains and on how many GPUs, for AgentJet servers."""
    job = load_job(text)
    return f"{one_line(get(job, MODEL), 60)} on {gpus_text(job)}"


def first_job_text(text: str, preset: str = "") -> str:
    """Return the text above the first job of an AgentJet server."""
    votes = f"; {votes_text(load_job(text))}" if preset == "hand" else ""
    return f"Its first job from here trains {needs_text(text)}{votes}. The whole job (↑ ↓ scrolls):"


def parse_set(pairs: Sequence[str]) -> dict[str, str]:
    """Parse `lr=1e-4` and the like, as typed on the command line.

    Raises:
        UsageError: `=` is missing, or the field is unknown.
    """
    settings: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or name not in BY_NAME:
            raise UsageError(
                f"`{one_line(name, 60)}` sets nothing", "--set", f"Fields: {', '.join(BY_NAME)}"
            )  # without the value, which may be a secret
        settings[name] = RULES.get(value, value) if name == "rule" else value
    return settings


def _read(field: Field, typed: str) -> Any:
    if not typed:
        if field.name == "model":
            raise FieldError(field, "is empty", field.about)
        return None  # the server uses its default
    try:
        return checked(KEYS[field.path], typed, field.label)
    except JobError as error:
        todo = f"One of: {', '.join(RULES)}" if field.kind == "rule" else error.todo
        raise FieldError(field, f"cannot be `{typed:.40}`", todo) from None


def _drop(job: Job, path: str) -> None:
    above, _, last = path.rpartition(".")
    inner = get(job, above)
    if isinstance(inner, dict):
        inner.pop(last, None)


def difference(running: str, text: str, whole: bool) -> list[Change]:
    """Return the changes of a job against the running one, fields first.

    Args:
        running: The running job, as far as it is known.
        text: The new job.
        whole: Whether the whole running job is known; else only known keys are compared.

    Raises:
        JobError: one of them is not a job.
    """
    if not running:
        return []
    differences = changes(load_job(running), load_job(text))
    differences = [change for change in differences if not _is_completion(change)]
    if not whole:
        differences = [
            change
            for change in differences
            if change.before is not MISSING and change.after is not MISSING
        ]
    order = {field.path: place for place, field in enumerate(FIELDS)}
    return sorted(differences, key=lambda change: order.get(change.path, len(order)))


def _is_completion(change: Change) -> bool:
    """Return whether a change only completes one side for an AgentJet server."""
    if change.path not in REQUIRED or MISSING not in (change.before, change.after):
        return False
    value = change.after if change.before is MISSING else change.before
    return same(value, REQUIRED[change.path])


def change_words(change: Change) -> tuple[str, str, str]:
    """Return name, value before and value after, for people."""
    field = field_of(change.path)
    path = secret_part(change.path) or change.path
    name = field.label if field is not None else path.removeprefix("ajet.")
    before, after = (
        _value(missing if missing is MISSING else without_secrets(missing, path))
        for missing in (change.before, change.after)
    )
    return name, before, f"{after} (changed)" if before == after else after


def _value(value: Any) -> str:
    words = {rule: word for word, rule in RULES.items()}
    return words.get(value, shown(value)) if isinstance(value, str) else shown(value)


def describe_changes(changes: Sequence[Change], width: int = 80) -> str:
    """Return the changes in one paragraph, for a question.

    Args:
        changes: The changes.
        width: Maximum length of one change.
    """
    if not changes:
        return "The job equals the one on the server."
    changes_text = [
        f"{name} {before} → {after}"
        for name, before, after in (change_words(change) for change in changes[:5])
    ]
    more = f" and {len(changes) - 5} more" if len(changes) > 5 else ""
    return f"Changes: {', '.join(one_line(change, width) for change in changes_text)}{more}."


# --- a job in brief --------------------------------------------------------------------------

_ALGORITHM = "ajet.trainer_common.algorithm.adv_estimator"


@dataclass(frozen=True, slots=True)
class RunJob:
    """The fields of a run's job that matter most, as text; empty where unknown."""

    model: str = ""
    algorithm: str = ""
    experiment: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    """Label and value of further fields."""

    @property
    def brief(self) -> str:
        """Return `tiny grpo lr 0.0005 4x4`."""
        known = dict(self.fields)
        parts = [self.model, self.algorithm]
        if rate := known.get("learning rate"):
            parts.append(f"lr {rate}")
        if (batch := known.get("tasks a step")) and (repeats := known.get("repeats")):
            parts.append(f"{batch}x{repeats}")
        return " ".join(filter(None, parts))


_RUN_FIELDS = (
    ("learning rate", LEARNING_RATE),
    ("tasks a step", BATCH),
    ("repeats", REPEAT),
    ("KL", KL),
    ("temperature", TEMPERATURE),
)


@lru_cache(maxsize=512)
def run_job(yaml: str) -> RunJob:
    """Return the most important fields of a job; all empty for a text that is none."""
    try:
        job = load_job(yaml)
    except UsageError:  # sent by a version that accepted it
        return RunJob()
    pairs = ((label, get(job, path)) for label, path in _RUN_FIELDS)
    return RunJob(
        model=_word(get(job, MODEL)),
        algorithm=_word(get(job, _ALGORITHM)),
        experiment=_word(get(job, EXPERIMENT)),
        fields=tuple((label, shown(value)) for label, value in pairs if value is not None),
    )


def _word(value: object) -> str:
    return "" if value is None else one_line(str(value), 60)


# --- the edited draft ------------------------------------------------------------------------


@dataclass(slots=True)
class JobDraft:
    """The job on the job screen, checked after each change."""

    sheet: JobInfo | None = None
    """The server's jobs; None before they are read."""
    text: str = ""
    base: str = ""
    """Text that the fields were filled from; its comments survive while no field changes."""
    wrong: UsageError | None = None
    """Error that prevents sending it; None for a valid job."""
    notices: tuple[Notice, ...] = ()
    changes: Sequence[Change] = dataclass_field(default_factory=list)

    def take(self, text: str) -> None:
        """Replace the text."""
        self.text = text
        self.check()

    def fields(self) -> dict[str, str] | None:
        """Return the values for the fields; None when the text is not a job."""
        try:
            fields = values(self.text)
        except UsageError:
            return None
        self.base = self.text
        return fields

    def edit(self, new_values: Mapping[str, str]) -> None:
        """Put the fields into the text; an invalid field leaves the text as it is."""
        try:
            self.text = with_values(self.base, new_values)
        except UsageError as error:
            self.wrong = error
            return
        self.check()

    def check(self) -> None:
        """Find errors and warnings, and the differences from the job of the server."""
        self.wrong, self.notices = None, ()
        try:
            embedded = self.sheet is not None and self.sheet.embedded
            self.notices = check_job(self.text, "line").notices_for(embedded=embedded)
            if self.sheet is not None:
                self.changes = difference(self.sheet.running, self.text, self.sheet.whole)
                if not self.sheet.embedded:
                    self._check_model(self.sheet.model)
        except UsageError as error:
            self.wrong = error

    def _check_model(self, unnamed: str) -> None:
        """Check that an AgentJet server can train the model; `unnamed` is the default model."""
        try:
            for_server(self.text, unnamed, "line")
        except ModelError as error:
            todo = "Give a folder or hub name on the server"
            raise FieldError(BY_NAME["model"], error.what, todo) from error

    def first_job(self) -> str:
        """Return the masked text of an AgentJet server's job; empty for an embedded one."""
        if self.sheet is None or self.sheet.embedded:
            return ""
        return masked(for_server(self.text, self.sheet.model).text)

    def differs(self, text: str) -> bool:
        """Return whether it differs from `text`, or is invalid."""
        if isinstance(self.wrong, FieldError):  # the text is unchanged, but the field is not
            return True
        if self.text == text:
            return False
        try:
            return bool(difference(text, self.text, True))
        except UsageError:
            return True

    @property
    def shows_secrets(self) -> bool:
        """Whether it contains secrets as typed, which the saved job masks."""
        return (
            self.sheet is not None and masked(self.text) != self.text and MASK in self.sheet.saved
        )

    @property
    def wrong_line(self) -> int:
        """The invalid line, from 1; 0 when unknown."""
        place = self.wrong.where.rpartition(":")[2] if self.wrong is not None else ""
        return int(place) if place.isdecimal() else 0

    @property
    def error_text(self) -> str:
        """The error, in one sentence."""
        wrong = self.wrong
        if wrong is None:
            return ""
        where = "" if wrong.where == "line" else wrong.where.replace("line:", "line ")
        error_text = ": ".join(text for text in (where, wrong.what) if text)
        return f"{error_text}. {wrong.todo}" if wrong.todo else error_text
