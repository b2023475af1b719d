"""How fast a thread samples."""

import math
import time
from collections import deque
from collections.abc import Callable


class SamplingSpeed:
    """Tokens per second of the token steps of one thread. That thread notes them, any thread reads.

    A step lasts from `begin`, or from the end of the step before it, to its `note`.

    Args:
        newest: Number of the newest steps that count; 0 for all since `restart`.
        lasts: Seconds after the last step until which there is a speed, unless work goes on.
        clock: Returns seconds.
    """

    def __init__(
        self,
        newest: int = 0,
        lasts: float = math.inf,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._newest, self._lasts, self._clock = newest, lasts, clock
        self._steps: deque[tuple[float, int]] = deque()
        """Seconds and tokens of the newest steps; empty if all count."""
        self._sum = (0.0, 0)
        """Seconds and tokens of the steps that count; replaced as a whole."""
        self._before: float | None = None
        """Tokens per second before the last `restart`."""
        self._since = clock()
        """Begin of the step that goes on."""
        self._working = False

    def begin(self) -> None:
        """Note that work begins: the pause before it has no part in the speed."""
        if self.tokens_per_second is None:
            self._forget()
        self._since, self._working = self._clock(), True

    def note(self, tokens: int) -> None:
        """Note a step that has ended now."""
        now = self._clock()
        seconds, count = now - self._since, tokens
        if self._newest:
            self._steps.append((seconds, tokens))
            if len(self._steps) > self._newest:
                oldest = self._steps.popleft()
                seconds, count = seconds - oldest[0], count - oldest[1]
        self._sum = (self._sum[0] + seconds, self._sum[1] + count)
        self._since = now

    def end(self) -> None:
        """Note that the work has ended."""
        self._working = False

    def restart(self) -> None:
        """Count from now on; until the next step the speed is that of the steps before."""
        self._before = self.tokens_per_second
        self._forget()

    @property
    def seconds(self) -> float:
        """Duration of the steps that count."""
        return self._sum[0]

    @property
    def tokens_per_second(self) -> float | None:
        """The speed; None if nothing is, or was, sampled."""
        if not self._working and self._clock() - self._since > self._lasts:
            return None
        seconds, tokens = self._sum
        return tokens / seconds if seconds > 0 else self._before

    def _forget(self) -> None:
        self._steps.clear()
        self._sum = (0.0, 0)
