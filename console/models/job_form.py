"""Converts between the fields of a job and its YAML, and finds the changes."""

from collections.abc import Mapping, Sequence
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import one_line
from ajet_swarm.protocol import job as jobs
from ajet_swarm.protocol.job import Job, dump_job, get, load_job, put
from ajet_swarm.protocol.job_diff import MISSING, Change, changes, same
from ajet_swarm.protocol.job_secrets import masked, secret_part, without_secrets
from ajet_swarm.protocol.job_validation import CheckedJob, Notice, check_job
from ajet_swarm.protocol.server_job import REQUIRED, ModelError, for_server
from console.models.job_fields import BY_NAME, FIELDS, RULES, Field, FieldError, field_of

__all__ = ["Change", "CheckedJob", "ModelError", "Notice", "check_job", "for_server", "masked"]


def shown(value: Any) -> str:
    """Return a value as people type it."""
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
        JobError: the text is no job.
    """
    job = load_job(text)
    texts: dict[str, str] = {}
    for field in FIELDS:
        value = get(job, field.path)
        texts[field.name] = "" if value is None else shown(value)
    return texts


def with_values(text: str, given: Mapping[str, str]) -> str:
    """Return the job with other values in its fields; the same text when nothing differs.

    Raises:
        FieldError: a field cannot be used; names it.
        JobError: the text is no job.
    """
    job, before = load_job(text), values(text)
    changed = False
    for name, typed in given.items():
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


def parse_set(pairs: Sequence[str]) -> dict[str, str]:
    """Parse `lr=1e-4` and the like, as typed on the command line.

    Raises:
        UsageError: no `=`, or a field that is none.
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
        return None  # the server takes its own value
    if field.kind == "rule":
        if typed not in jobs.STOP_RULES:
            raise FieldError(field, f"cannot be `{typed:.40}`", f"One of: {', '.join(RULES)}")
        return typed
    if field.kind == "text":
        return typed
    try:
        number = float(typed)
    except ValueError:
        number = float("nan")
    whole = field.kind == "int"
    if number != number or abs(number) == float("inf") or (whole and not number.is_integer()):
        kind = "a whole number" if whole else "a number"
        raise FieldError(field, f"cannot be `{typed:.40}`", f"Give {kind}: {field.about}")
    if number < (1 if whole else 0):
        raise FieldError(field, f"cannot be {typed:.40}", f"At least {1 if whole else 0}")
    return int(number) if whole else number


def _drop(job: Job, path: str) -> None:
    above, _, last = path.rpartition(".")
    inner = get(job, above)
    if isinstance(inner, dict):
        inner.pop(last, None)


def difference(running: str, text: str, whole: bool) -> list[Change]:
    """Return the changes of a job against the running one, fields first.

    Args:
        running: The job that runs, as far as it is known.
        text: The new one.
        whole: All of the running one is known; else only keys that are known are compared.

    Raises:
        JobError: one of them is no job.
    """
    if not running:
        return []
    differences = changes(load_job(running), load_job(text))
    differences = [one for one in differences if not _is_completion(one)]
    if not whole:
        differences = [
            one for one in differences if one.before is not MISSING and one.after is not MISSING
        ]
    order = {field.path: place for place, field in enumerate(FIELDS)}
    return sorted(differences, key=lambda one: order.get(one.path, len(order)))


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
        _value(one if one is MISSING else without_secrets(one, path))
        for one in (change.before, change.after)
    )
    return name, before, f"{after} (changed)" if before == after else after


def _value(value: Any) -> str:
    words = {rule: word for word, rule in RULES.items()}
    return words.get(value, shown(value)) if isinstance(value, str) else shown(value)
