"""Ratios of the benchmarks from version to version.

    .venv/bin/python -m bench.versions [--runs 5] [--tree FOLDER] [--dry-run] BENCH ...

Runs each benchmark several times and appends the medians of its ratios to `bench/history.jsonl`,
with commit, version and class of machine; then writes docs/measured/history.md and its plot from
that file. Absolute times are not stored: they depend on the machine. Fails when a ratio is a
quarter worse than the one stored last for the same class of machine.

`--tree` measures another checkout, such as that of an earlier version.
"""

import argparse
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[1]
STORE = ROOT / "bench" / "history.jsonl"
PAGE = ROOT / "docs" / "measured" / "history.md"
PLOT = ROOT / "docs" / "measured" / "history.svg"
WORSE = 1.25
_LINE = re.compile(r"^(PASS|FAIL) (\S+) ([0-9.]+) x (<=|>=) ", re.MULTILINE)
_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#888888")


class Ratio(msgspec.Struct, frozen=True):
    """One ratio over several runs."""

    median: float
    least: float
    largest: float
    better: str
    """`less` or `more`."""


class Point(msgspec.Struct, frozen=True):
    """The ratios of one version."""

    commit: str
    date: str
    """Day of the measurement."""
    machine: str
    runs: int
    ratios: dict[str, Ratio]
    """Bench and figure -> ratio."""


def machine() -> str:
    """Return the class of this machine: processor and number of cores."""
    name = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file() and (match := re.search(r"^model name\s*: (.+)$", info.read_text(), re.M)):
        name = match[1].strip()
    return f"{name}, {os.cpu_count()} cores"


def ratios_of(output: str) -> dict[str, tuple[float, str]]:
    """Return the ratios in the output of a benchmark, with whether less or more is better."""
    return {
        name: (float(figure), "less" if sign == "<=" else "more")
        for _, name, figure, sign in _LINE.findall(output)
    }


def measure(benches: Sequence[str], runs: int, tree: Path) -> dict[str, Ratio]:
    """Run benchmarks in a checkout; return the median of each ratio."""
    figures: dict[str, list[float]] = {}
    better: dict[str, str] = {}
    for number in range(runs):
        for bench in benches:
            print(f"run {number + 1} of {runs}: {bench}", flush=True)
            command = [sys.executable, "-m", f"bench.{bench}"]
            done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
            ratios = ratios_of(done.stdout)
            if not ratios:
                raise SystemExit(
                    f"{bench} printed no ratio:\n{(done.stdout + done.stderr)[-2000:]}"
                )
            for name, (figure, side) in ratios.items():
                figures.setdefault(f"{bench}.{name}", []).append(figure)
                better[f"{bench}.{name}"] = side
    return {
        name: Ratio(statistics.median(all_), min(all_), max(all_), better[name])
        for name, all_ in figures.items()
    }


def stored() -> list[Point]:
    """Return all points, oldest first."""
    if not STORE.exists():
        return []
    lines = STORE.read_text(encoding="utf-8").splitlines()
    return [msgspec.json.decode(line, type=Point) for line in lines if line]


def worse(point: Point, before: Sequence[Point]) -> list[str]:
    """Return a sentence for each ratio that is a quarter worse than the one stored last."""
    faults = []
    for name, ratio in point.ratios.items():
        same = [one for one in before if one.machine == point.machine and name in one.ratios]
        if not same or not same[-1].ratios[name].median or not ratio.median:
            continue
        last = same[-1].ratios[name].median
        change = ratio.median / last if ratio.better == "less" else last / ratio.median
        if change > WORSE:
            faults.append(f"{name}: {ratio.median:.3g} x, {last:.3g} x at {same[-1].commit}")
    return faults


def commit_of(tree: Path) -> str:
    """Return the abbreviated commit of a checkout; with `+` for changed files."""
    name = _git(tree, "rev-parse", "--short=8", "HEAD")
    return name + ("+" if _git(tree, "status", "--porcelain", "--untracked-files=no") else "")


def _git(tree: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=tree, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def page(points: Sequence[Point]) -> str:
    """Return the page with a table for each class of machine."""
    lines = [
        "# Ratios from version to version",
        "",
        "    .venv/bin/python -m bench.versions engine proxy_cost",
        "",
        "Written from `bench/history.jsonl`. Each figure is the median of several runs (least to",
        "largest). A ratio compares two things that were measured in the same run, so it depends",
        "little on the machine. The command fails when a ratio is a quarter worse than the last",
        "one of the same class of machine.",
        "",
        "![ratios](history.svg)",
    ]
    for kind in dict.fromkeys(point.machine for point in points):
        some = [point for point in points if point.machine == kind]
        names = list(dict.fromkeys(name for point in some for name in point.ratios))
        heads = [f"{point.commit}, {point.date}, {point.runs} runs" for point in some]
        lines += ["", f"## {kind}", "", f"| ratio | better | {' | '.join(heads)} |"]
        lines.append("|---" * (len(heads) + 2) + "|")
        for name in names:
            ratios = [point.ratios.get(name) for point in some]
            cells = [
                "" if one is None else f"{one.median:.3g} ({one.least:.3g} to {one.largest:.3g})"
                for one in ratios
            ]
            side = next(one.better for one in ratios if one is not None)
            lines.append(f"| {name} | {side} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plot(points: Sequence[Point]) -> str:
    """Return an SVG of each ratio relative to its first point, where above 1 is better.

    Machines of different classes have lines of their own.
    """
    width, height, left, top = 760, 300, 50, 20
    room, deep = width - left - 250, height - 2 * top
    names = list(dict.fromkeys(name for point in points for name in point.ratios))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]

    def y(value: float) -> float:
        return top + deep * (1 - min(max(value, 0.0), 2.0) / 2)

    for value in (0.5, 1.0, 1.5, 2.0):
        parts.append(
            f'<line x1="{left}" x2="{left + room}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
            f'stroke="#dddddd"/><text x="{left - 8}" y="{y(value) + 4:.1f}" text-anchor="end">'
            f"{value:g}</text>"
        )
    step = room / max(len(points) - 1, 1)
    kinds = list(dict.fromkeys(one.machine for one in points))
    for place, name in enumerate(names):
        colour = _COLOURS[place % len(_COLOURS)]
        parts.append(
            f'<text x="{left + room + 12}" y="{top + 14 * place + 4}" fill="{colour}">{name}</text>'
        )
        for kind in kinds:
            same = [
                (at, one.ratios[name])
                for at, one in enumerate(points)
                if one.machine == kind and name in one.ratios and one.ratios[name].median
            ]
            dots = []
            for at, ratio in same:
                first = same[0][1].median
                gain = first / ratio.median if ratio.better == "less" else ratio.median / first
                dots.append(f"{left + at * step:.1f},{y(gain):.1f}")
            parts.append(
                f'<polyline points="{" ".join(dots)}" fill="none" stroke="{colour}" '
                'stroke-width="2"/>'
            )
    for at, one in enumerate(points):
        parts.append(
            f'<text x="{left + at * step:.1f}" y="{height - 4}" text-anchor="middle">'
            f"{one.commit}</text>"
        )
    return "".join(parts) + "</svg>\n"


def write(points: Sequence[Point]) -> None:
    """Write page and plot."""
    PAGE.write_text(page(points), encoding="utf-8")
    PLOT.write_text(plot(points), encoding="utf-8")


def main() -> None:
    """Measure, compare, store, draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("benches", nargs="+", metavar="BENCH", help="such as engine, proxy_cost")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tree", type=Path, default=ROOT, help="checkout to measure")
    parser.add_argument("--dry-run", action="store_true", help="compare, store nothing")
    args = parser.parse_args()
    ratios = measure(args.benches, args.runs, args.tree.resolve())
    day = datetime.now(UTC).date().isoformat()
    point = Point(commit_of(args.tree), day, machine(), args.runs, ratios)
    before = stored()
    faults = worse(point, before)
    if not args.dry_run:
        with STORE.open("a", encoding="utf-8") as file:
            file.write(msgspec.json.encode(point).decode() + "\n")
        write([*before, point])
    print(page([point]) if args.dry_run else f"Stored in {STORE.relative_to(ROOT)}")
    for name, ratio in ratios.items():
        print(f"{'FAIL' if any(one.startswith(name + ':') for one in faults) else 'PASS'} "
              f"{name} {ratio.median:.3f} x a quarter worse than before at most")  # fmt: skip
    for fault in faults:
        print(f"worse: {fault}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
