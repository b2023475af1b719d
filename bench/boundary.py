"""Cost of a batch boundary beyond the sync itself: 64 threads, our client compared with polling.

    .venv/bin/python -m bench.boundary

A scripted server runs batches of 16 tasks x 4 repeats with a sync of two seconds between them. The
cost of a boundary is the time from the moment the server rolls again until all 64 threads hold an
episode. Every boundary of our client must cost less than one second.

The polling client uses AgentJet's periods. It runs 3 batches, ours 10: each of its boundaries takes
more than ten seconds, determined by its sleeps of 5 and 15 s and not by the machine, so more of
them would only take time. Medians are compared.
"""

import statistics
import threading
import time
from collections.abc import Callable

from ajet_swarm.client.synchronous import SwarmClient
from ajet_swarm.protocol.task import WorkflowOutput
from bench.bars import Verdicts
from bench.polling_client import PollingClient
from tests.support.scripted.threaded_swarm import ThreadedSwarm, threaded_swarm

THREADS, BATCH, REPEAT = 64, 16, 4
OURS, THEIRS = 10, 3
"""Number of batches."""
SYNC, EPISODE = 2.0, 0.05
"""Seconds of the server's sync, and of an episode."""


def batches(
    swarm: ThreadedSwarm,
    count: int,
    begin: Callable[[], str],
    end: Callable[[str, str], None],
    close_thread: Callable[[], None],
) -> list[float]:
    """Run `count` batches with one episode per thread; return the seconds lost at each boundary.

    No thread ends its episode before all hold one, and none begins the next before all have ended:
    each batch is complete, and all threads wait at the boundary.
    """
    rolled: list[float] = []
    all_hold, all_ended = threading.Barrier(THREADS), threading.Barrier(THREADS)
    held: dict[int, list[float]] = {}
    lock = threading.Lock()

    def watch() -> None:
        """Record at once when the server rolls, on its own thread."""
        set_state = swarm.server.set_state

        def recorded(state: str, step: int | None = None) -> None:
            set_state(state, step)
            if state == "ROLLING":
                rolled.append(time.perf_counter())

        swarm.server.set_state = recorded  # type: ignore[method-assign]  # wrapped for the bench

    def work(number: int) -> None:
        for batch in range(count):
            uuid = begin()
            with lock:
                held.setdefault(batch, []).append(time.perf_counter())
            all_hold.wait()
            time.sleep(EPISODE)
            swarm.server.episodes[uuid].calls = 1  # an end without a call would not count
            end(f"b{batch}t{number // REPEAT}", uuid)
            all_ended.wait()
        close_thread()

    swarm.do(watch)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [max(held[batch]) - rolled[batch - 1] for batch in range(1, count)]


def ours(swarm: ThreadedSwarm) -> list[float]:
    """Measure `SwarmClient`."""
    with SwarmClient(swarm.url) as client:

        def end(task: str, uuid: str) -> None:
            client.end_episode(task, uuid, WorkflowOutput(reward=0.5))

        return batches(swarm, OURS, lambda: client.begin_episode()[0], end, lambda: None)


def theirs(swarm: ThreadedSwarm) -> list[float]:
    """Measure the polling client."""
    client = PollingClient(swarm.url)
    try:
        return batches(
            swarm,
            THEIRS,
            client.begin_episode,
            lambda task, uuid: client.end_episode(task, uuid, 0.5),
            client.close_thread,
        )
    finally:
        client.close()


def main() -> None:
    """Measure both, one after the other."""
    costs: dict[str, list[float]] = {}
    for name, run in (("SwarmClient", ours), ("polling", theirs)):
        with threaded_swarm(batch=BATCH, repeat=REPEAT, slots=THREADS, sync_seconds=SYNC) as swarm:
            costs[name] = run(swarm)
        seconds = " ".join(f"{cost:.2f}" for cost in costs[name])
        print(f"{name:12} seconds lost at each boundary: {seconds}")
    mine, other = (statistics.median(costs[name]) for name in ("SwarmClient", "polling"))
    print(f"median {mine:.2f} s against {other:.2f} s")
    verdicts = Verdicts()
    verdicts.at_most("boundary_median", mine, 1.0, "s")
    verdicts.at_most("boundary_worst", max(costs["SwarmClient"]), 1.0, "s")
    verdicts.at_least("polling_over_ours", other / mine, 3.0, "times")
    verdicts.close()


if __name__ == "__main__":
    main()
