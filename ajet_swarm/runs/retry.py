"""Retries with growing pauses."""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.protocol.errors import TrainingFinished

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


_REPORTS = threading.RLock()
"""Lock around the log message of a failure and around a stop; see `stop_quietly`."""


class Stopped(Exception):
    """The run has ended, so that the job is not tried."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Number of tries and pauses between them.

    Attributes:
        tries: Largest number of tries; None for no limit, as in AgentJet's executors.
        first: Pause after the first failure, in seconds; it doubles after each further one.
        most: Longest pause in seconds.
        never: Errors that are not retried, in addition to `TrainingFinished`: by default those of a
            script that no further try can cure.
    """

    tries: int | None = 3
    first: float = 0.5
    most: float = 30.0
    never: tuple[type[Exception], ...] = (UsageError, ImportError)

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after `failures` failures, with a random factor."""
        return random.uniform(0.5, 1.0) * min(self.most, self.first * 2.0 ** min(failures - 1, 20))

    def ends(self, error: Exception, tried: int) -> bool:
        """Return whether `error` ends the tries, of which `tried` have been made."""
        if isinstance(error, (TrainingFinished, *self.never)):
            return True
        return self.tries is not None and tried >= self.tries


ONCE = Retry(tries=1)
FOREVER = Retry(tries=None)


@dataclass(slots=True)
class AttemptResult:
    """Result of all tries."""

    value: Any = None
    error: Exception | None = None
    tries: int = 0
    seconds: float = 0.0
    """Seconds from the first try to the end of the last."""


def stop_quietly(stop: threading.Event) -> None:
    """Set `stop`; after this returns, `attempt` logs no more failures as warnings."""
    with _REPORTS:
        stop.set()


def attempt(
    work: Callable[[], object],
    retry: Retry,
    stop: threading.Event,
    name: str,
    pause_after: Callable[[int], float] | None = None,
) -> AttemptResult:
    """Run `work` until it succeeds or has no tries left.

    An `Exception` is returned in the result; others, such as an interrupt, are raised.

    Args:
        work: The function.
        retry: Number of tries and pauses.
        stop: Event that ends the tries.
        name: Name of the work in log messages.
        pause_after: Returns the seconds to wait after so many failures, instead of `retry`.
    """
    tried = AttemptResult()
    began = time.monotonic()
    while True:
        tried.tries += 1
        try:
            tried.value, tried.error = work(), None
        except Exception as error:  # code of a script may raise anything
            tried.error = error
            last = retry.ends(error, tried.tries) or stop.is_set()
            pause = 0.0 if last else (pause_after or retry.pause)(tried.tries)
            with _REPORTS:
                ending = stop.is_set() or isinstance(error, TrainingFinished)
                log.log(
                    # A failure while the run ends is most likely caused by its end.
                    logging.INFO if ending else logging.WARNING,
                    "%s failed (try %d)%s: %s",
                    name,
                    tried.tries,
                    "" if last else f", again in {pause:.1f} s",
                    str(error) or type(error).__name__,
                    # Log a traceback only for errors of the script.
                    exc_info=None if isinstance(error, AjetError) else error,
                )
            last = last or stop.wait(pause)
        else:
            last = True
        if last:
            tried.seconds = time.monotonic() - began
            return tried


def retry_with_backoff(
    max_retry: int = 3,
    backoff_fn: Callable[[int], float] | None = None,
    max_retry_attr: str | None = None,
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return AgentJet's decorator, which retries a function when it raises.

    Args:
        max_retry: Number of tries in total, at least one.
        backoff_fn: Returns the seconds to wait after failure 0, 1, ...; default 1, 2, 4, ...
        max_retry_attr: Attribute of the first argument (a method's `self`) that replaces
            `max_retry` if it is a positive whole number.

    Returns:
        The decorator. The error of the last try is raised.
    """

    def decorator(func: Callable[P, T]) -> Callable[P, T]:
        @wraps(func)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
            own = getattr(args[0], max_retry_attr, None) if max_retry_attr and args else None
            tries = own if isinstance(own, int) and own > 0 else max(1, max_retry)
            tried = attempt(
                lambda: func(*args, **kwargs),
                Retry(tries, never=()),
                threading.Event(),
                getattr(func, "__name__", "it"),
                lambda failures: backoff_fn(failures - 1) if backoff_fn else 2.0 ** (failures - 1),
            )
            if tried.error is not None:
                raise tried.error
            return cast("T", tried.value)

        return wrapper

    return decorator
