"""Whether rewards teach the embedded policy, and only rewards do.

    .venv/bin/python -m bench.learning

Three rewards and three seeds through sampler and learner, without HTTP: 8 prompts x 4 answers an
update, 40 updates, evaluated on held-out prompts; then a person's single ratings, a constant and a
random reward. About three minutes on two quiet cores.
"""

import time
from collections.abc import Sequence
from statistics import mean, median

from bench.bars import Verdicts
from bench.learning.training import GROUPS, LOOKS, PLANS, REPEATS, UPDATES, Run, run_all
from engine.interface import Hyperparameters

SEEDS = (1, 2, 3)


def at(runs: Sequence[Run], step: int) -> float:
    """Return the median over the seeds of the held-out measure after `step` updates."""
    return median(run.values[step] for run in runs)


def table(results: dict[str, list[Run]]) -> str:
    """Return a Markdown table: lowest, median and highest seed."""
    steps = [step for step in LOOKS if any(step in run[0].values for run in results.values())]
    lines = [
        "| reward | " + " | ".join(map(str, steps)) + " | intelligible, before and after | KL |",
        "|---" * (len(steps) + 3) + "|",
    ]
    for name, runs in results.items():
        digits = 0 if name == "shortest" else 2
        cells = []
        for step in steps:
            values = sorted(run.values[step] for run in runs if step in run.values)
            cells.append(
                f"{values[0]:.{digits}f} **{median(values):.{digits}f}** {values[-1]:.{digits}f}"
                if values
                else ""
            )
        last = max(runs[0].values)
        clear = " -> ".join(f"{median(r.intelligible[n] for r in runs):.3f}" for n in (0, last))
        clear = "" if name == "arithmetic" else clear
        cells += [clear, f"{median(run.kl for run in runs):.3f}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def judge(results: dict[str, list[Run]]) -> Verdicts:
    """Compare the medians of the seeds with the bars."""
    verdicts = Verdicts()
    glad, right, short = (results[name] for name in ("enthusiasm", "arithmetic", "shortest"))
    hand, same, noise = (results[name] for name in ("hand", "constant", "random"))

    def clear(runs: Sequence[Run]) -> float:
        return median(run.intelligible[max(run.intelligible)] for run in runs)

    verdicts.at_least("enthusiasm gain at 15", at(glad, 15) - at(glad, 0), 0.3, "reward")
    verdicts.at_least("enthusiasm at 20", at(glad, 20), 0.7, "reward")
    verdicts.at_least("arithmetic gain at 15", at(right, 15) - at(right, 0), 0.2, "share right")
    verdicts.at_most("shortest at 20", at(short, 20) / at(short, 0), 2 / 3, "of the characters")
    verdicts.at_least("enthusiasm intelligible at 40", 100 * clear(glad), 97, "%")
    verdicts.at_least("shortest intelligible at 40", 100 * clear(short), 93, "%")
    gain = median(run.values[25] - run.values[0] for run in hand)
    verdicts.at_least("25 ratings by hand gain", gain, 0.15, "reward")
    dead = mean(stats.dead_groups / stats.groups for run in same for stats in run.stats[-5:])
    verdicts.at_least("constant reward no signal", dead, 1.0, "of the groups")
    moved = 100 * max(run.moved for run in same)
    verdicts.at_most("constant reward moves", moved, 0, "% of what was learned")
    verdicts.at_most("random reward KL", max(run.kl for run in noise), 0.05, "nats a token")
    lost = median(run.intelligible[0] - run.intelligible[UPDATES] for run in noise)
    verdicts.at_most("random reward intelligible lost", 100 * lost, 3, "points")
    return verdicts


def main() -> None:
    """Measure, print and compare with the bars."""
    start = time.perf_counter()
    results = run_all([plan.name for plan in PLANS], SEEDS, Hyperparameters())
    print(f"\nHeld-out prompts, lowest **median** highest of {len(SEEDS)} seeds:\n")
    print(table(results))
    glad = results["enthusiasm"]
    seconds = median(stats.seconds for run in glad for stats in run.stats)
    print(
        f"\nupdate of {GROUPS}x{REPEATS} answers {seconds:.2f} s, sampling them "
        f"{median(run.sampling for run in glad):.2f} s, all {time.perf_counter() - start:.0f} s\n"
    )
    for name in ("enthusiasm", "shortest", "hand"):
        print("\n".join(f"{name}: {line}" for line in results[name][0].spoken))
    print()
    judge(results).close()


if __name__ == "__main__":
    main()
