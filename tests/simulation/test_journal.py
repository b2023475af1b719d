"""The journal in memory keeps the promises of the real one."""

import asyncio
import inspect
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from core.bus import Bus
from core.events import ConsoleAttached
from core.journal.file import JournalError
from core.journal.writer import Journal
from tests.simulation.journal import COMMIT, SYNC, JournalFile, SimulatedJournal
from tests.simulation.loop import Incarnation, SimulatedLoop, context_of, simulated_loop


def run(work: Coroutine[Any, Any, None], seed: int = 0) -> None:
    with simulated_loop(seed) as loop:
        loop.run_until_complete(work)
        assert not loop.errors


def bus_on(journal: SimulatedJournal) -> Bus:
    bus: Any = Bus
    made: Bus = bus(journal, "run")
    return made


def loop_of() -> SimulatedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop


def test_it_is_called_like_the_real_one() -> None:
    writing = ("append", "append_snapshot", "put_meta", "committed", "durable", "failure", "close")
    reading = ("meta", "events", "group_events", "last_seq", "load_state")
    for name in (*writing, *reading):
        real, model = getattr(Journal, name), getattr(SimulatedJournal, name)
        assert inspect.signature(model) == inspect.signature(real), name


@pytest.mark.parametrize("seed", range(20))
def test_an_event_is_committed_then_synced_then_read_again(seed: int) -> None:
    async def main() -> None:
        file = JournalFile()
        journal = SimulatedJournal(file, chance=Random(seed))
        bus = bus_on(journal)
        seq = bus.publish(ConsoleAttached(consoles=2))
        journal.put_meta("key", "value")
        assert not file.lines
        assert journal.meta("key") is None
        await journal.committed(seq)
        assert len(file.lines) == 1
        assert journal.meta("key") == "value"
        assert asyncio.get_running_loop().time() <= COMMIT[1]
        await journal.durable(seq)
        assert asyncio.get_running_loop().time() <= COMMIT[1] + SYNC[1]
        again = SimulatedJournal(file)
        assert again.load_state() == bus.state
        assert [event.seq for event in again.events()] == [1]
        await again.durable(seq)

    run(main(), seed)


@pytest.mark.parametrize("with_open_batch", [False, True])
def test_a_kill_leaves_the_commits_of_that_moment(with_open_batch: bool) -> None:
    async def process(journal: SimulatedJournal, resumed: list[str]) -> None:
        bus = bus_on(journal)
        await bus.publish_committed(ConsoleAttached(consoles=1))
        await bus.publish_durable(ConsoleAttached(consoles=2))
        bus.publish(ConsoleAttached(consoles=3))
        bus.publish(ConsoleAttached(consoles=4))
        resumed.append("waits")
        await journal.committed(4)
        resumed.append("committed")

    async def main() -> None:
        file, process_id, resumed = JournalFile(), Incarnation("proxy"), list[str]()
        journal = SimulatedJournal(file, process_id)
        loop_of().create_task(process(journal, resumed), context=context_of(process_id))
        while not resumed:
            await asyncio.sleep(0.001)
        journal.cut(with_open_batch)
        loop_of().kill(process_id)
        journal.append(ConsoleAttached(seq=5, consoles=5))
        await asyncio.sleep(10)
        assert resumed == ["waits"]
        assert len(file.lines) == (4 if with_open_batch else 2)
        reopened = SimulatedJournal(file, Incarnation("proxy"))
        assert reopened.last_seq() == len(file.lines)
        assert bus_on(reopened).publish(ConsoleAttached(consoles=6)) == len(file.lines) + 1

    run(main())


def test_what_a_killed_process_appends_never_reaches_the_file() -> None:
    async def main() -> None:
        file, process = JournalFile(), Incarnation("proxy")
        journal = SimulatedJournal(file, process)
        journal.append(ConsoleAttached(seq=1, consoles=1))
        loop_of().kill(process)
        journal.append(ConsoleAttached(seq=2, consoles=2))
        journal.put_meta("key", "value")
        journal.cut(with_open_batch=True)
        assert [event.seq for event in file.events()] == [1]
        assert not file.meta

    run(main())


def test_a_full_disk_fails_what_waits_and_loses_nothing() -> None:
    async def main() -> None:
        file = JournalFile()
        journal, reports = SimulatedJournal(file), list[Any]()
        journal.on_error = journal.on_recovered = reports.append
        bus = bus_on(journal)
        waits = loop_of().create_task(bus.publish_durable(ConsoleAttached(consoles=1)))
        await asyncio.sleep(0)
        journal.fill()
        with pytest.raises(JournalError, match="the disk is full"):
            await waits
        with pytest.raises(JournalError):
            bus.publish_checked(ConsoleAttached(consoles=2))
        with pytest.raises(JournalError):
            await journal.committed(2)
        await asyncio.sleep(30)
        assert not file.lines
        journal.resume()
        await journal.durable(2)
        assert len(file.lines) == 2
        assert isinstance(reports[0], JournalError)
        assert reports[1:] == [30]

    run(main())


def test_a_stalled_disk_reports_nothing_and_delays_all() -> None:
    async def main() -> None:
        journal = SimulatedJournal(JournalFile())
        bus = bus_on(journal)
        journal.stall()
        loop_of().call_later(60, journal.resume)
        await bus.publish_committed(ConsoleAttached(consoles=1))
        assert loop_of().time() >= 60

    run(main())


def test_a_sync_covers_only_the_commits_before_it() -> None:
    async def main() -> None:
        journal = SimulatedJournal(JournalFile(), chance=Random(1))
        bus = bus_on(journal)
        durable: list[tuple[int, float]] = []

        async def wait(seq: int) -> None:
            await journal.durable(seq)
            durable.append((seq, loop_of().time()))

        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(wait(bus.publish(ConsoleAttached(consoles=number))))
                await asyncio.sleep(0.01)
        times = [at for _, at in sorted(durable)]
        assert times == sorted(times)
        assert len(set(times)) > 3

    run(main())


def test_a_commit_during_a_sync_is_durable_after_a_later_one() -> None:
    during = 0

    async def main(seed: int) -> None:
        nonlocal during
        file = JournalFile()
        journal = SimulatedJournal(file, chance=Random(seed))
        bus = bus_on(journal)

        async def synced(seq: int) -> float:
            await journal.durable(seq)
            assert file.durable == seq
            return loop_of().time()

        await journal.committed(bus.publish(ConsoleAttached(consoles=1)))  # schedules a sync
        async with asyncio.TaskGroup() as group:
            first = group.create_task(synced(1))
            second = group.create_task(synced(bus.publish(ConsoleAttached(consoles=2))))
            await journal.committed(2)
            during += not first.done()
        assert first.result() < second.result()

    for seed in range(20):
        run(main(seed))
    assert during > 5


def test_close_writes_what_is_queued() -> None:
    async def main() -> None:
        file = JournalFile()
        journal = SimulatedJournal(file)
        bus_on(journal).publish(ConsoleAttached(consoles=1))
        journal.close()
        assert len(file.lines) == 1

    run(main())
