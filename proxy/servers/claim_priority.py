"""Priority of claims over ends: a user waits for a claim, no one for an end."""

import asyncio

MANY = 8
"""Number of claiming groups from which on ends are delayed."""
MAX_DELAY = 0.03
"""Maximum delay of an end, in seconds."""


class ClaimPriority:
    """Counter of the claims of one server; delays ends while there are many.

    Users whose answers take equally long return in waves. Without a delay, the ends of a wave would
    run before its last claims.
    """

    __slots__ = ("_alarm", "_claiming", "_waiting")

    def __init__(self) -> None:
        self._claiming = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def crowded(self) -> bool:
        """Whether many groups claim now."""
        return self._claiming >= MANY

    def begin(self) -> None:
        """Record that a group begins to claim; pair with `end`."""
        self._claiming += 1

    def end(self) -> None:
        """Record that a group has its episodes, or failed to get them."""
        self._claiming -= 1
        if self._waiting and self._claiming < MANY:
            self._go()

    async def turn(self) -> None:
        """Wait until fewer groups claim, at most `MAX_DELAY` seconds."""
        if self._claiming < MANY:
            return
        loop = asyncio.get_running_loop()
        if self._alarm is None:
            self._alarm = loop.call_later(MAX_DELAY, self._go)
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append(future)
        await future

    def _go(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
