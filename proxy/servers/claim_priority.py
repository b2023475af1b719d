"""Ends give way to claims: a user waits for the one, nobody for the other."""

import asyncio

MANY = 8
"""Groups that claim at once from which on ends give way to them."""
LONGEST = 0.03
"""Seconds they do so at most."""


class ClaimPriority:
    """Who claims now, and who waits until fewer do; of one server.

    Users whose answers take equally long come back in waves. What a wave's ends cost would come
    before its last claims; after them there is time.
    """

    __slots__ = ("_alarm", "_claiming", "_waiting")

    def __init__(self) -> None:
        self._claiming = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def crowded(self) -> bool:
        """Many claim now."""
        return self._claiming >= MANY

    def begin(self) -> None:
        """A group begins to claim; pair with `end`."""
        self._claiming += 1

    def end(self) -> None:
        """It has its episodes, or does not get them."""
        self._claiming -= 1
        if self._waiting and self._claiming < MANY:
            self._go()

    async def turn(self) -> None:
        """Wait until fewer claim, `LONGEST` at most."""
        if self._claiming < MANY:
            return
        loop = asyncio.get_running_loop()
        if self._alarm is None:
            self._alarm = loop.call_later(LONGEST, self._go)
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
