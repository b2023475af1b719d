"""Weight updates of the embedded engine under load: a queue for users, never an error.

The small form is `tests/e2e/test_loop.py::test_parallel_users_over_updates`.
"""

import asyncio
import random
from pathlib import Path

import pytest

from tests.support.faults.load import Load
from tests.support.stack import loop_up, until

pytestmark = [pytest.mark.process, pytest.mark.soak, pytest.mark.timeout(1200)]

UPDATES = 50
BUDGET = 90.0


async def test_fifty_updates_without_a_failed_request(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text("proxy:\n  session_cap: 0\n  session_calls: 0\n")
    with loop_up(home) as stack:
        first = stack.step()
        crowd = Load(stack.base_url.removesuffix("/v1"), random.Random(5), BUDGET, leave=0.0)
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(1000), crowd.running(6):
            while await asyncio.to_thread(stack.step) < first + UPDATES:
                await asyncio.sleep(0.2)
        seconds = asyncio.get_running_loop().time() - began
        waits = sorted(request.ended - request.began for request in crowd.requests)
        print(
            f"{stack.step() - first} updates, {len(waits)} requests in {seconds:.0f} s, "
            f"median {waits[len(waits) // 2]:.2f} s, longest {waits[-1]:.2f} s, "
            f"{dict(crowd.tally())}"
        )
        assert crowd.tally() == {"answered": len(crowd.requests)}, crowd.faults()
        await asyncio.to_thread(
            until, "all groups closed", lambda: not stack.state().open_groups(), 60
        )
        await asyncio.to_thread(until, "nothing claimed", lambda: not stack.claimed(), 60)
