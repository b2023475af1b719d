"""What is claimed in one turn: for the group that has it, and for those next in the line."""

from collections.abc import Callable, Iterator, Sequence

from swarm.answers import Claimed, Refused, RefusedKind
from swarm.orders import Order

MOST = 8
"""Groups whose episodes are claimed in one turn. Of a server far away 64 groups that come at once
then have theirs after a dozen round trips and not after 64."""

FAILED = Refused(RefusedKind.OTHER, "it failed")


class Flight:
    """Claims that are on their way together, and which group each answer is for.

    What is granted goes to the first group that is not complete, whoever it was claimed for: never
    do two groups hold parts at the same time.

    Args:
        orders: In the order of the line; the first one has the turn.
        took: Called with each episode and the order it is for.
        refused: Called with each refusal.
    """

    __slots__ = ("_refused", "_took", "claims", "left", "orders", "stop")

    def __init__(
        self,
        orders: Sequence[Order],
        *,
        took: Callable[[Order, Claimed], None],
        refused: Callable[[Refused], None],
    ) -> None:
        self.orders = orders
        self._took = took
        self._refused = refused
        self.claims = sum([order.n - order.had for order in orders if not order.stopped()])
        """How many it has."""
        self.left = self.claims
        """Those without an answer."""
        self.stop: Refused | None = None
        """Why not all groups will be complete."""

    def answered(self, answer: Claimed | Refused) -> Order | None:
        """One claim was answered.

        Returns:
            The order of which nothing is missing any more since then.
        """
        self.left -= 1
        completed: Order | None = None
        if isinstance(answer, Claimed):
            order = self._taker()
            self._took(order, answer)
            completed = order if order.complete else None
        else:
            self._refused(answer)
            self.stop = self.stop or answer
            if answer.kind is not RefusedKind.NONE_AVAILABLE:
                self.stop_all(answer)
        self._look()
        return completed

    def broken(self, error: Exception | None) -> None:
        """A claim failed in a way nobody foresaw: who would have had its episode is told."""
        self.left -= 1
        self.stop = self.stop or FAILED
        if (order := self._wanting()) is not None:
            order.error, order.stop = error, self.stop
        self._look()

    def stop_all(self, why: Refused) -> None:
        """Whoever is not complete will not be."""
        self.stop = self.stop or why
        for order in self.orders:
            if not (order.complete or order.stopped()):
                order.stop = why

    def fail_others(self, error: Exception) -> None:
        """Nobody will hear the answers: all but the first, who knows, are told."""
        self.stop_all(FAILED)
        for order in self.orders[1:]:
            if not order.complete:
                order.error = order.error or error

    @property
    def wanted(self) -> bool:
        """Whether somebody still waits for an episode."""
        return self._wanting() is not None

    def loose(self) -> Iterator[Order]:
        """Those that hold a part that is to be given back."""
        return (order for order in self.orders if order.stop is not None and order.held)

    def _wanting(self) -> Order | None:
        for order in self.orders:
            if order.had < order.n and order.stop is None:
                return order
        return None

    def _taker(self) -> Order:
        """The first that wants it; else one that does no more, which gives it back."""
        if (order := self._wanting()) is not None:
            return order
        return next(one for one in self.orders if one.had < one.n)

    def _look(self) -> None:
        """Whether the first that is not complete can still be."""
        if self.stop is None or (order := self._wanting()) is None:
            return
        if order.n - order.had > self.left:
            self.stop_all(self.stop)
