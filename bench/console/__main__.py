"""CPU cost and response times of the console, on a real pseudo terminal of 160x48.

    .venv/bin/python -m bench.console [--quick]

The proxy is a stand-in in a process of its own that brings 2,000 events a second, among them those
of 100 candidates whose answers grow.

Where other programs want the cores too, a key also waits for them: the kernel tells how long the
console was ready and stood in line. Both figures are printed; that without it has the bar.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from bench.bars import Verdicts
from bench.console.live import RATE, measure_live
from bench.console.probe import HEAVY
from bench.console.run import (
    OVERVIEW,
    QUICK,
    REQUESTS,
    Form,
    Proxy,
    attached,
    crowding,
    quantile,
    say,
    stand_in,
)
from bench.console.terminal import TerminalProgram
from bench.console.traffic import PAIR
from core.runtime.home import Home

LINE = "on a machine of its own the same as the line above"
FLOOD_LIMIT = 300.0
RESIDENT = 120.0
"""Maximum memory of a console in MB."""
END = "OFFLINE"
"""Text shown once all requests of a flood were processed."""
TOTAL = r"Requests +(\d+) +↑"
"""Pattern of the total number of requests in the list."""


def first_paint(verdicts: Verdicts, home: Home, proxy: Proxy, form: Form) -> None:
    """Measure the time from exec to the first full screen, and the modules imported by then."""
    durations, own_durations = [], []
    for _ in range(form.paints):
        with TerminalProgram(["-m", "console", *proxy.args], home) as program:
            durations.append(program.expect("Quit") - program.began)
            own_durations.append(durations[-1] - program.stood())
    middle, alone = quantile(durations, 0.5), quantile(own_durations, 0.5)
    say(
        "first paint",
        f"{middle:.2f} s",
        f"median of {len(durations)}, slowest {max(durations):.2f} s",
    )
    say("  without standing in line for a core", f"{alone:.2f} s", LINE)
    file = home.root / "modules"
    with TerminalProgram(["-m", "bench.console.probe", str(file), *proxy.args], home) as program:
        program.expect("ROLLING")
    modules = file.read_text().split()
    heavy = [name for name in HEAVY if name in modules]
    say("modules imported by then", str(len(modules)), f"heavy: {', '.join(heavy) or 'none'}")
    verdicts.at_most("first_paint", alone, 1.0, "s")
    verdicts.at_most("heavy_imports_before_it", len(heavy), 0, "packages")


def idle(verdicts: Verdicts, home: Home, proxy: Proxy, form: Form) -> None:
    """Measure the idle CPU: only the clock of a rolling engine changes."""
    shares = []
    for key, name in ((OVERVIEW, "Overview"), (REQUESTS, "Requests")):
        with attached(home, proxy, key) as program:
            shares.append(program.share(form.idle))
            say(f"idle CPU, {name}", f"{shares[-1]:.2f} %", f"{form.idle:g} s")
    verdicts.at_most("idle_cpu", max(shares), 2.0, "%")


def live(verdicts: Verdicts, home: Home, proxy: Proxy, form: Form) -> None:
    """Measure the Requests list while 2,000 events a second arrive."""
    figures = measure_live(home, proxy, form)
    say("events processed", f"{figures.rate:.0f} /s", f"of {RATE} /s sent")
    say("CPU", f"{figures.cpu:.1f} %", f"{figures.cpu * 10 / figures.rate:.3f} ms an event")
    say("memory", f"{figures.resident:.0f} MB")
    half, slowest = 1000 * quantile(figures.moved, 0.5), 1000 * max(figures.moved)
    note = f"p50 {half:.0f}, slowest {slowest:.0f} ms, {len(figures.moved)} keys"
    say("key to its row painted, p95", f"{1000 * quantile(figures.moved, 0.95):.0f} ms", note)
    own = 1000 * quantile(figures.own, 0.95)
    say("  without standing in line for a core, p95", f"{own:.0f} ms", LINE)
    verdicts.at_most("key_to_paint_p95", own, 50.0, "ms")
    verdicts.at_most("live_resident", figures.resident, RESIDENT, "MB")
    verdicts.at_least("events_processed", figures.rate, 0.97 * RATE, "/s")


def flood(verdicts: Verdicts, home: Home, proxy: Proxy, form: Form) -> None:
    """Send many requests of two candidates as fast as possible."""
    with attached(home, proxy, REQUESTS) as program:
        first, before, began = program.number(TOTAL), program.resident(), time.monotonic()
        most = before
        proxy.order("flood", requests=form.requests)
        while END not in program.seen and time.monotonic() - began < FLOOD_LIMIT:
            program.seen = ""
            program.read(0.5)
            most = max(most, program.resident())
        seconds = time.monotonic() - began
        program.rest(1.0)
        after = program.resident()
        done = program.number(TOTAL) - first
    rate = form.requests * PAIR / seconds
    note = f"{seconds:.0f} s, {rate:.0f} events/s; {before:.0f} MB before, at most {most:.0f} MB"
    say(f"memory after {form.requests:,} requests", f"{after:.0f} MB", note)
    verdicts.at_most("resident_at_most", most, RESIDENT, "MB")
    verdicts.at_least("requests_taken_in", done, form.requests, "requests")


def main() -> None:
    """Measure everything once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="less of everything, under a minute")
    form = QUICK if parser.parse_args().quick else Form()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and nothing stays behind
    verdicts, began = Verdicts(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        home = Home.open(Path(folder) / "home")
        with stand_in(home) as proxy:
            first_paint(verdicts, home, proxy, form)
            idle(verdicts, home, proxy, form)
            live(verdicts, home, proxy, form)
            flood(verdicts, home, proxy, form)
    load = os.getloadavg()[0]
    note = f"a busy loop's time over its CPU; load average {load:.1f}, {os.cpu_count()} cores"
    say("how crowded the machine was", f"{crowding():.2f} x", note)
    say("the bench itself", f"{time.monotonic() - began:.0f} s")
    verdicts.close()


if __name__ == "__main__":
    main()
