"""Processor time of a request without telemetry, not sampled by it, at 5 % and at 100 %.

    python -m bench.telemetry

One proxy on the instant stub of `bench.proxy_cost`, with N = 4, is switched between the four by a
signal and measured in turn, in short slices: two processes of the same program differ by up to a
tenth. A collector takes the spans. The collector and the users are other processes, whose time does
not count. A slice takes longer than the interval between two batches, so that it contains their
cost.
"""

import argparse
import asyncio
import contextlib
import itertools
import math
import os
import random
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from ajet_swarm.runtime import Chance
from bench.bars import Verdicts
from bench.proxy_cost.run import Figures, Stub, Subject, child, measure
from core.bus import Bus
from core.runtime.home import Home, running
from tests.support.otlp import collector
from tests.support.stack import until

SLICES = 8
REQUESTS = 2_000
USERS = 16
UNSAMPLED = 5.0
"""Percent that a request that is not sampled may cost more than one without telemetry."""
WITHOUT = "without"
SHARES = {"unsampled": 0.0, "five": 0.05, "all": 1.0}
MODES = (WITHOUT, *SHARES)


def modes() -> Iterator[str]:
    """Yield the mode of each slice: all of them in every round, each time in another order."""
    rng = random.Random(7)
    while True:
        yield from rng.sample(MODES, len(MODES))


@contextlib.contextmanager
def switched(stub: Stub, folder: Path, url: str) -> Iterator[Subject]:
    """Start a proxy; each SIGUSR1 switches it to the next of `modes`, the first one at first."""
    home = Home.open(folder)
    text = f"telemetry: {{enabled: true, sample: 1.0, endpoint: '{url}'}}\n"
    (home.root / "config.yaml").write_text(text)
    flags = ("--home", str(home.root), "--swarm-url", f"http://127.0.0.1:{stub.port}")
    with child("bench.telemetry", *flags) as (process, port):
        until("it is up", lambda: running(home, "proxy"))
        yield Subject("ours", process.pid, port)


def run_proxy(home: str, url: str) -> int:
    """Run a proxy that can be switched, and print its port."""
    import proxy.main
    import proxy.telemetry.service as service
    from console.cli import main as console
    from proxy.admission import admit
    from proxy.dialects.client_marks import trace_context_of
    from proxy.telemetry.service import Recorder

    write_run_file = proxy.main._publish_run_file
    following = modes()
    mode = next(following)

    def printed(publish: Callable[[], object]) -> bool:
        done = write_run_file(publish)
        assert isinstance(publish, partial)
        print(publish.keywords["port"], flush=True)
        return done

    class Switched(Recorder):
        def __init__(self, bus: Bus, share: float, chance: Chance, writer: Any) -> None:
            others = list(bus._listeners)
            super().__init__(bus, share, chance, writer)
            own = [listener for listener in bus._listeners if listener not in others]
            apply(bus, own, self)
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGUSR1, switch, bus, own, self)

    def switch(bus: Bus, own: list[Any], recorder: Recorder) -> None:
        nonlocal mode
        mode = next(following)
        apply(bus, own, recorder)

    def apply(bus: Bus, own: list[Any], recorder: Recorder) -> None:
        has_telemetry = mode != WITHOUT
        bus._listeners[:] = [listener for listener in bus._listeners if listener not in own]
        bus._listeners += own if has_telemetry else []
        bus._by_kind.clear()
        recorder._share = SHARES.get(mode, 0.0)
        read = trace_context_of if has_telemetry else no_context
        admit.trace_context_of = read  # type: ignore[attr-defined]  # looked up there

    def no_context(headers: object) -> tuple[str, str]:
        return "", ""

    os.environ["AJET_CONSOLE__PROBE__SHARE"] = "0"  # looks take processor time
    with (
        mock.patch.object(proxy.main, "_publish_run_file", printed),
        mock.patch.object(service, "Recorder", Switched),
    ):
        return console(["run", "proxy", "--home", home, "--port", "0", "--swarm-url", url])


def main() -> None:
    """Measure, print and compare with the bars."""
    parser = argparse.ArgumentParser(description="What telemetry costs.")
    parser.add_argument("--slices", type=int, default=SLICES)
    for hidden in ("--home", "--swarm-url"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.home:
        sys.exit(run_proxy(args.home, args.swarm_url))
    slices: dict[str, list[Figures]] = {name: [] for name in MODES}
    with (
        tempfile.TemporaryDirectory() as folder,
        collector() as seen,
        child("bench.proxy_cost.stub") as (_, port),
        switched(Stub(port), Path(folder), seen.url) as subject,
    ):
        print(f"CPU ms per request, {USERS} users, {REQUESTS} requests in each slice")
        measure(subject, Stub(port), USERS, requests=REQUESTS)
        following = modes()
        for _ in range(args.slices):
            for name in itertools.islice(following, len(MODES)):
                slices[name].append(measure(subject, Stub(port), USERS, requests=REQUESTS))
                os.kill(subject.pid, signal.SIGUSR1)
            print("".join(f"{name:>9} {slices[name][-1].cpu:.3f}" for name in MODES), flush=True)
    sent = sum(span.name == "ajet.request" for span in seen.spans)
    judge(slices, sent)


def judge(slices: dict[str, list[Figures]], sent: int) -> None:
    """Compare the figures with the bars, and end the process."""
    verdicts = Verdicts()
    cpu = {name: [figures.cpu for figures in several] for name, several in slices.items()}

    def ratios(name: str, base: str) -> list[float]:
        return [mine / other for mine, other in zip(cpu[name], cpu[base], strict=True)]

    def more(name: str, base: str) -> float:
        return 100 * (statistics.median(ratios(name, base)) - 1)

    same = ratios("unsampled", WITHOUT)
    error = statistics.stdev(same) / math.sqrt(len(same)) if len(same) > 1 else 1.0
    for name, several in cpu.items():
        verdicts.info(f"telemetry_{name}_cpu", statistics.median(several), "ms per request")
    verdicts.info("telemetry_standard_error", 100 * error, "%")
    verdicts.at_most("telemetry_unsampled", more("unsampled", WITHOUT), UNSAMPLED, "%")
    verdicts.info("telemetry_5_percent", more("five", WITHOUT), "%")
    verdicts.info("telemetry_100_percent", more("all", WITHOUT), "%")
    errors = sum(figures.errors for several in slices.values() for figures in several)
    verdicts.at_most("telemetry_errors", errors, 0, "requests")
    requests = len(cpu["all"]) * REQUESTS
    verdicts.at_least("telemetry_requests_sent", sent, requests, "at 5 % and 100 %")
    verdicts.close()


if __name__ == "__main__":
    main()
