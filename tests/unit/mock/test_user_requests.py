"""The mock user as a process: exit codes, kill -9, signals, what it prints."""

import asyncio
import io
import os
import signal
import sys
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse

from ajet_swarm.common.errors import UsageError
from ajet_swarm.protocol.errors import DatasetError
from core.runtime.home import AlreadyRunning, Home, Role, running
from mock.run.pace import Pace
from mock.targets.base import ModelEndpoint
from mock.user_requests import MockOptions, run
from tests.support.pty.text import TerminalText
from tests.unit.mock.helpers import Target, kept, until, write_rows

_CHILD = """
import sys
from pathlib import Path
from core.runtime.home import Home
from core.runtime.log_format import setup
from mock.run.pace import Pace
from mock.targets.base import ModelEndpoint
from mock.user_requests import MockOptions, run
setup()
root, dataset, url = sys.argv[1:]
sys.exit(run(MockOptions(
    home=Home.open(Path(root)), dataset=Path(dataset), target="t",
    endpoint=ModelEndpoint(base_url=url), pace=Pace(concurrency=2),
)))
"""


async def _child(home: Home, dataset: Path, url: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _CHILD,
        str(home.root),
        str(dataset),
        url,
        cwd=Path(__file__).parents[3],
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.process
async def test_after_kill_9_no_row_is_asked_twice(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = write_rows(tmp_path / "d.jsonl", 8)
    target.hold, target.hold_from = asyncio.Event(), 4
    folder = home.root / "mock"

    def marked() -> int:
        return sum(len(kept(file)) for file in folder.glob("*.sqlite"))

    child = await _child(home, path, target.url)
    await until(lambda: target.in_flight == 2 and marked() == 4, 90)
    assert running(home, "mock") is not None
    os.kill(child.pid, signal.SIGKILL)
    await child.communicate()
    assert running(home, "mock") is None
    before = len(target.row_ids)
    target.hold = None
    again = await _child(home, path, target.url)
    _, value = await again.communicate()
    assert again.returncode == 0, value
    rest = target.row_ids[before:]
    assert len(rest) == 2
    assert set(target.row_ids[:before]).isdisjoint(rest)
    assert b"2 rows asked" in value
    assert b"6 done before" in value
    assert b"2 rows lost in flight when a start was killed" in value


@pytest.mark.process
@pytest.mark.parametrize(
    ("number", "code", "cause"),
    [(signal.SIGTERM, 0, b"stopped: terminated"), (signal.SIGINT, 130, b"stopped: interrupted")],
)
async def test_a_signal_ends_it_in_order(
    home: Home, tmp_path: Path, target: Target, number: signal.Signals, code: int, cause: bytes
) -> None:
    target.hold = asyncio.Event()
    child = await _child(home, write_rows(tmp_path / "d", 4), target.url)
    await until(lambda: target.in_flight == 2, 90)
    child.send_signal(number)
    if number == signal.SIGINT:
        target.hold.set()  # requests in flight may end
    async with asyncio.timeout(90):
        _, value = await child.communicate()
    assert child.returncode == code
    assert cause in value
    assert b"2 rows left" in value or b"4 rows left" in value
    target.hold.set()


@pytest.mark.process
async def test_a_run_without_any_answer_fails(home: Home, tmp_path: Path, target: Target) -> None:
    target.script = lambda number: PlainTextResponse("broken", 500)
    child = await _child(home, write_rows(tmp_path / "d", 2), target.url)
    _, value = await child.communicate()
    assert child.returncode == 1
    assert b"2 x 500: broken" in value


def _options(home: Home, dataset: Path, url: str = "http://127.0.0.1:9") -> MockOptions:
    endpoint = ModelEndpoint(base_url=url)
    return MockOptions(home=home, dataset=dataset, endpoint=endpoint, pace=Pace(patience=0.1))


def test_unusable_options_are_errors_before_anything_is_sent(home: Home, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"gone\.jsonl"):
        run(_options(home, tmp_path / "gone.jsonl"))
    with pytest.raises(UsageError, match="not an address"):
        run(_options(home, write_rows(tmp_path / "d", 1), "127.0.0.1:8000"))


def test_a_home_has_one_mock_user(home: Home, tmp_path: Path) -> None:
    with Role(home, "mock"), pytest.raises(AlreadyRunning):
        run(_options(home, write_rows(tmp_path / "d", 1)))


def test_a_target_that_is_not_there_fails_with_a_summary(home: Home, tmp_path: Path) -> None:
    out = io.StringIO()
    assert run(_options(home, write_rows(tmp_path / "d", 1)), out=out) == 1
    assert "failed: http://127.0.0.1:9/v1/chat/completions: no answer" in out.getvalue()
    assert "1 row left" in out.getvalue()


def test_the_summary_counts_broken_rows_by_reason(home: Home, tmp_path: Path) -> None:
    file, out = tmp_path / "d.jsonl", io.StringIO()
    file.write_text("broken\n" * 5 + '{"query": "a"}\n{"query": ""}\n')
    run(_options(home, file), out=out)
    named = [line for line in out.getvalue().splitlines() if line.startswith("  line ")]
    assert [line.partition(":")[0] for line in named] == ["  line 1", "  line 7"]
    assert named[0].endswith("(and 4 more like it)")


def test_a_terminal_gets_one_line_that_is_cleared(home: Home, tmp_path: Path) -> None:
    out = TerminalText()
    run(_options(home, write_rows(tmp_path / "d", 1)), out=out)
    text = out.getvalue()
    assert "\r\x1b[2K0/1 rows" in text
    assert "\n" not in text[: text.rindex("\x1b[2K")]
