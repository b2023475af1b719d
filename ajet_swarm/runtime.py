"""What a program takes from outside that differs from run to run: the time, and chance.

Code of `ajet_swarm`, `core` and `proxy` reads the time and draws ids, pauses and orders through the
`Runtime` that it is given; `SYSTEM` is that of a real process. A simulation gives one whose time is
virtual and whose draws come from a seed, so that a run can be repeated.

Sleeps, timeouts and timers are those of asyncio: they follow the clock of the event loop, which a
simulation replaces as a whole. A `random.Random(seed)` with a seed of its own needs no seam either.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Clock:
    """The two clocks of a process."""

    wall: Callable[[], float] = time.time
    """Returns Unix seconds: for times that are shown, stored or compared with other processes."""
    monotonic: Callable[[], float] = time.monotonic
    """Returns seconds since an arbitrary moment, never less than before: for durations."""


class Chance:
    """Source of ids, secrets and random pauses.

    Attributes:
        random: The generator; by default the system's, whose draws nobody can predict.
    """

    def __init__(self, generator: random.Random | None = None) -> None:
        self.random = generator or random.SystemRandom()

    def uniform(self, low: float, high: float) -> float:
        """Return a number between `low` and `high`."""
        return self.random.uniform(low, high)

    def token(self, size: int) -> str:
        """Return `size` random bytes as hex digits."""
        return f"{self.random.getrandbits(8 * size):0{2 * size}x}"

    def uuid(self) -> str:
        """Return a UUID of version 4."""
        return str(UUID(int=self.random.getrandbits(128), version=4))


@dataclass(frozen=True, slots=True)
class Runtime:
    """The clocks and the chance of one process."""

    clock: Clock = field(default_factory=Clock)
    chance: Chance = field(default_factory=Chance)


SYSTEM = Runtime()
"""The runtime of a real process."""
