"""What a browser shows instead of a console, and why its console was closed."""

from typing import NamedTuple

_MOST_REASON = 123
"""Bytes of a reason that the protocol of websockets allows."""


class Notice(NamedTuple):
    """One message for the person at the browser; it names nothing of the machine."""

    code: int
    """Close code of the websocket."""
    status: int
    """Status of the page."""
    title: str
    todo: str

    @property
    def reason(self) -> bytes:
        """The message as the reason of a close code."""
        return f"{self.title}. {self.todo}.".encode()[:_MOST_REASON]


ENDED = Notice(1000, 200, "This console has ended", "Open it again")
SERVER_ENDS = Notice(1001, 503, "The web server has ended", "Ask the operator to start it")
NO_LINK = Notice(
    4401,
    401,
    "This page needs a link",
    "Ask the operator for one: ajet-console run web --link rater. Open an earlier link again after "
    "a restart of the server.",
)
BAD_LINK = Notice(
    4401, 401, "This link is wrong, expired or revoked", "Ask the operator for a new one"
)
MOVED = Notice(4410, 200, "The proxy has restarted elsewhere", "Open the console again")
START_FAILED = Notice(4500, 503, "The console could not start", "Ask the operator: the log has why")
PROXY_DOWN = Notice(4503, 503, "The proxy does not run", "Ask the operator to start it")


def full(most: int) -> Notice:
    """Return the notice that as many consoles as allowed are open."""
    todo = "Close one, or ask the operator for more: --most"
    return Notice(4429, 503, f"All consoles are in use: at most {most} at once", todo)


def full_of_link(most: int) -> Notice:
    """Return the notice that one link has as many consoles open as allowed."""
    return Notice(4429, 503, f"This link has {most} consoles open, the most", "Close one of them")
