"""Reports the end of a killed mock user to the proxy, because it can no longer do so itself."""

import asyncio
import logging

from ajet_swarm.common.errors import AjetError
from console.session.app_state import ChildProcess, Session
from console.text.causes import exit_text
from core.events import MockFinished
from core.runtime.home import Home
from core.state import Mock

log = logging.getLogger(__name__)


class CrashedMockReporter:
    """Posts `MockFinished` for a mock user of this home whose process is gone.

    Args:
        home: Contains the results of its mock users. A mock user without results here belongs to
            another home and is ignored.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._reported = ""
        self._suspect = ""

    async def check(
        self, session: Session, before: Mock | None, child: ChildProcess | None
    ) -> None:
        """Report the mock user's end when two checks in a row find its process gone.

        Args:
            before: The mock user known before the processes were polled: another may have
                started since.
            child: The mock user's process as just polled; None when there is none.
        """
        dead = child is None or child.pid is None
        if before is None or before.ended_at is not None or not dead or session.read_only:
            self._suspect = ""
            return
        name = before.mock_id
        if name == self._reported or session.link is None or not session.seen:
            return
        if self._suspect != name:  # its own report may still be on its way
            self._suspect = name
            return
        if not await asyncio.to_thread((self._home.root / "mock" / f"{name}.jsonl").exists):
            return
        code = child.exit_code if child is not None else None
        cause = exit_text(code) if code is not None else "its process is gone"
        try:
            known = (await session.link.snapshot()).mock
            if known is not None and known.mock_id == name and known.ended_at is None:
                end = MockFinished(mock_id=name, how="failed", cause=cause)
                await session.link.post_fact(f"{name}:end", end)
        except AjetError as error:
            log.debug("the end of the mock user is not reported yet: %s", error)
            return
        self._reported = name
