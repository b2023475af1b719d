"""Trying again, later each time."""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.protocol.errors import TrainingFinished

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class Stopped(Exception):
    """The run ends; what is tried is not tried again."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and how long after a failure.

    Attributes:
        tries: At most so many; None for as long as it takes, as AgentJet's executors do.
        first: Seconds after the first failure; twice as many after each further one.
        most: Seconds at most.
        never: Errors that would come again: wrong use. `TrainingFinished` always is one.
    """

    tries: int | None = 3
    first: float = 0.5
    most: float = 30.0
    never: tuple[type[Exception], ...] = (UsageError,)

    def pause(self, failures: int) -> float:
        """Seconds after so many failures; drawn, so that many do not come back together."""
        return random.uniform(0.5, 1.0) * min(self.most, self.first * 2.0 ** min(failures - 1, 20))

    def ends(self, error: Exception, tried: int) -> bool:
        """Whether that was the last try."""
        if isinstance(error, (TrainingFinished, *self.never)):
            return True
        return self.tries is not None and tried >= self.tries


ONCE = Retry(tries=1)
FOREVER = Retry(tries=None)


@dataclass(slots=True)
class AttemptResult:
    """What came of it."""

    value: Any = None
    error: Exception | None = None
    tries: int = 0
    seconds: float = 0.0
    """From the first try to the end of the last."""


def attempt(
    work: Callable[[], object], retry: Retry, stop: threading.Event, name: str
) -> AttemptResult:
    """Run `work` until it succeeds or is given up; never raises but for an interrupt.

    Args:
        work: What to do.
        retry: How often.
        stop: Set, nothing is tried again.
        name: For the log.
    """
    tried = AttemptResult()
    began = time.monotonic()
    while True:
        tried.tries += 1
        try:
            tried.value, tried.error = work(), None
        except Exception as error:  # a script's own code: anything may come
            tried.error = error
            last = retry.ends(error, tried.tries) or stop.is_set()
            pause = 0.0 if last else retry.pause(tried.tries)
            ending = stop.is_set() or isinstance(error, TrainingFinished)
            log.log(
                # What fails while the run is being ended fails for that.
                logging.INFO if ending else logging.WARNING,
                "%s failed (try %d)%s: %s",
                name,
                tried.tries,
                "" if last else f", again in {pause:.1f} s",
                str(error) or type(error).__name__,
                # Ours say all there is to know; of a script's own the line matters.
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
    """AgentJet's decorator: try a function again when it raises.

    Args:
        max_retry: Tries in all, one at least.
        backoff_fn: Seconds to wait after a failure, by its number from 0; 1, 2, 4, ... without.
        max_retry_attr: Attribute of the first argument (a method's `self`) that replaces
            `max_retry` where it is a positive whole number.

    Returns:
        The decorator. What the last try raises is raised.
    """

    def decorator(func: Callable[P, T]) -> Callable[P, T]:
        @wraps(func)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
            own = getattr(args[0], max_retry_attr, None) if max_retry_attr and args else None
            tries = own if isinstance(own, int) and own > 0 else max(1, max_retry)
            for done in range(tries - 1):
                try:
                    return func(*args, **kwargs)
                except TrainingFinished:
                    raise
                except Exception as error:  # a script's own code: anything may come
                    pause = backoff_fn(done) if backoff_fn else 2.0**done
                    name = getattr(func, "__name__", "it")
                    log.warning(
                        "%s failed (try %d of %d), again in %.3g s: %s",
                        *(name, done + 1, tries, pause, error),
                        exc_info=None if isinstance(error, AjetError) else error,
                    )
                    time.sleep(pause)
            return func(*args, **kwargs)

        return wrapper

    return decorator
