"""Events of orders to an engine that take several steps, and of the jobs that were sent."""

import msgspec

from core.events.base import Event


class JobSent(Event, frozen=True, kw_only=True):
    """A server took a job from here; the next start runs it."""

    yaml: str
    how: str = ""
    """Where it came from: given, saved, default or hand."""


class WorkStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a work."""

    title: str
    phase: str = "waiting"
    """waiting, doing, done, skipped, failed or cancelled."""
    began: float = 0.0
    """Unix seconds; 0 before it began."""
    ended: float = 0.0
    detail: str = ""


class WorkChanged(Event, frozen=True, kw_only=True):
    """A work on an engine began, got further or is over."""

    work: str
    """`Start` or `Apply a job`."""
    steps: tuple[WorkStep, ...]
    phase: str = "doing"
    """doing, done, failed or cancelled."""
    began: float = 0.0
    said: str = ""
    """How it ended, and what the server was left in."""
