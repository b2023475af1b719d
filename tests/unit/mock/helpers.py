"""A small OpenAI-compatible server, a control API in memory, and waiting."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ajet_swarm.common.tasks import Tasks
from ajet_swarm.data.records import decode_json
from core.events import Event
from core.runtime.home import Home
from core.state import State
from mock.control import ControlDown
from mock.dataset import Columns, Row, open_dataset
from mock.dataset.rows import parse_record
from mock.run.pace import Outcome, Pace
from mock.run.progress import Progress
from mock.run.results import Results
from mock.run.row_order import RowSelection
from mock.run.runner import Runner
from mock.targets.base import ModelEndpoint
from mock.targets.fake import FakeTarget
from mock.targets.spec import FakeSpec
from mock.users.persona import UserModel
from tests.support.served import served

EventT = TypeVar("EventT", bound=Event)


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


@dataclass
class Target:
    """What the server was asked, and what it does."""

    url: str = ""
    row_ids: list[str] = field(default_factory=list)
    """The header of each request, in order."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    in_flight: int = 0
    most: int = 0
    hold: asyncio.Event | None = None
    """While set to an unset event no request is answered."""
    hold_from: int = 0
    """Number of the first request that `hold` is for."""
    script: Callable[[int], Response | None] = lambda number: None
    """An answer other than the usual one, by number of the request."""

    async def answer(self, request: Request) -> Response:
        number = len(self.row_ids)
        self.row_ids.append(request.headers.get("x-ajet-row", ""))
        self.headers.append(dict(request.headers))
        body = msgspec.json.decode(await request.body())
        self.bodies.append(body)
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            if self.hold is not None and number >= self.hold_from:
                await self.hold.wait()
            if (script := self.script(number)) is not None:
                return script
            text = "re: " + body["messages"][-1]["content"]
            return JSONResponse({"choices": [{"message": {"role": "assistant", "content": text}}]})
        finally:
            self.in_flight -= 1


@contextlib.asynccontextmanager
async def serve(
    answer: Callable[[Request], Awaitable[Response]], port: int = 0
) -> AsyncIterator[int]:
    """Serve `POST /v1/chat/completions`; gives the port."""
    app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])
    async with served(app, port=port) as url:
        yield int(url.rpartition(":")[2])


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Target]:
    """A server that answers."""
    target = Target()
    async with serve(target.answer) as port:
        target.url = f"http://127.0.0.1:{port}/v1"
        yield target


@dataclass
class FakeControl:
    """The control API, in memory."""

    order: str = "run"
    rows: list[dict[str, Any]] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    facts: dict[str, Event] = field(default_factory=dict)
    down: int = 0
    """So many further calls fail."""
    after: Callable[["FakeControl"], None] = lambda control: None
    """Called after each registered row."""

    async def register_row(self, row: Mapping[str, Any]) -> str:
        self._fail()
        result = self.order
        if result == "run":
            self.rows.append(dict(row))
            self.after(self)
        return result

    async def release_row(self, row_id: str) -> None:
        self._fail()
        self.released.append(row_id)

    async def directive(self, mock_id: str) -> str:
        self._fail()
        return self.order

    async def post_fact(self, fact_id: str, event: Event) -> None:
        self._fail()
        self.facts.setdefault(fact_id, event)

    state: State = field(default_factory=State)
    feed: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)

    async def snapshot(self) -> State:
        return self.state

    async def events(self, after: int, run_id: str) -> AsyncIterator[object]:
        while True:
            yield await self.feed.get()

    def publish(self, event: Event) -> None:
        """Send an event to all followers."""
        self.seq += 1
        self.feed.put_nowait(msgspec.structs.replace(event, seq=self.seq))

    seq: int = 0

    def kinds(self) -> list[str]:
        return [event.kind for event in self.facts.values()]

    def _fail(self) -> None:
        if self.down:
            self.down -= 1
            raise ControlDown("the proxy does not answer")


def parse(line: int, data: bytes, columns: Columns | None = None) -> Row:
    """A line of JSON as a row."""
    return parse_record(line, decode_json(data), columns)


def kept(file: Path) -> list[dict[str, Any]]:
    """The results in a file of progress."""
    with contextlib.closing(sqlite3.connect(file, timeout=60)) as progress:
        found = progress.execute("SELECT result FROM rows WHERE result IS NOT NULL")
        return [msgspec.json.decode(result) for (result,) in found]


def write_rows(path: Path, count: int) -> Path:
    """`count` plain rows."""
    lines = (
        msgspec.json.encode({"query": f"question {n}", "answer": f"{n}"}) for n in range(count)
    )
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


@contextlib.asynccontextmanager
async def open_runner(
    home: Home,
    path: Path,
    url: str,
    pace: Pace | None = None,
    control: FakeControl | None = None,
    *,
    timeout: float = 10.0,
    restart: bool = False,
    choice: RowSelection | None = None,
    results: Path | None = None,
    wait: float = 5.0,
    user: UserModel | None = None,
) -> AsyncIterator[Runner]:
    """A runner on `path`, as the process would make it."""
    pace = pace or Pace(poll=0.02)
    with contextlib.ExitStack() as stack:
        dataset = stack.enter_context(open_dataset(path))
        progress = stack.enter_context(Progress(home.root / "mock", dataset.fingerprint(), restart))
        spec = FakeSpec(path=Path(url), timeout=timeout)
        asker = FakeTarget(spec, ModelEndpoint(base_url=url), pace.concurrency)
        try:
            result = Results(results, wait) if results is not None else None
            if result is not None:
                stack.callback(result.close)
            yield Runner(
                dataset, progress, asker, pace, choice or RowSelection(), control, result, user
            )
        finally:
            await asker.close()


@contextlib.asynccontextmanager
async def begun(*args: Any, **options: Any) -> AsyncIterator[tuple[Runner, asyncio.Task[Outcome]]]:
    """A runner that runs; see `open_runner`."""
    async with open_runner(*args, **options) as runner, Tasks("test") as tasks:
        yield runner, tasks.spawn(runner.run(), "run")


async def ran(*args: Any, **options: Any) -> tuple[Runner, Outcome]:
    """A runner that has run, and its outcome; see `open_runner`."""
    async with open_runner(*args, **options) as runner:
        return runner, await runner.run()


@dataclass
class Stage:
    """A home, a folder for rows, the application, and the control API in memory."""

    home: Home
    folder: Path
    target: Target
    control: FakeControl = field(default_factory=FakeControl)

    def write(self, *rows: dict[str, Any], name: str = "d.jsonl") -> Path:
        """These rows as a file."""
        path = self.folder / name
        path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        return path

    def begun(self, rows: Path | int, pace: Pace | None = None, **options: Any) -> Any:
        """As `begun`, of these rows or of so many plain ones."""
        path = rows if isinstance(rows, Path) else write_rows(self.folder / "d.jsonl", rows)
        options = {"control": self.control, **options}
        return begun(self.home, path, self.target.url, pace, **options)

    async def run(
        self, rows: Path | int, pace: Pace | None = None, **options: Any
    ) -> tuple[Runner, Outcome]:
        """As `ran`, of these rows or of so many plain ones."""
        async with self.begun(rows, pace, **options) as (runner, running):
            return runner, await running

    def events(self, kind: type[EventT]) -> list[EventT]:
        """The facts of one kind."""
        return [event for event in self.control.facts.values() if isinstance(event, kind)]

    @property
    def results(self) -> list[dict[str, Any]]:
        """What is kept of the rows that ended."""
        return [row for file in (self.home.root / "mock").glob("*.sqlite") for row in kept(file)]
