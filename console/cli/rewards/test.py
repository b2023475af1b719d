"""`reward-test`: score stored groups or a file with new rewards, before using them in training."""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import one_line
from console.cli.common import confirm, count, existing_home, say, say_json
from console.cli.effective import effective
from console.cli.options import add_note
from console.text.causes import SHOWN_AS_ZERO, held_down
from core.commands.rewards import weights_of
from core.events import TrialGroup, TrialSummary

if TYPE_CHECKING:
    from core.runtime.home import Home
    from core.settings import Settings
    from proxy.rewards.trial.replay import Case, TrialResult
    from proxy.rewards.trial.source import TrialChoice, TrialSource

LAST = 100
SHOWN = 40
"""Groups in the table, unless `--all` is given."""
_QUERY = 40


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.set_defaults(handler=reward_test)
    add_note(
        parser,
        "         ajet-console reward-test --weight length=0.1 --weight diversity=0.6",
        "         ajet-console reward-test --one 3f2a --hooks ./my_hooks --pdb",
        "Exit code: 0 all groups got rewards, 1 a group abstained or the rewards do not load, "
        "2 wrong use.",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--last", type=whole_number, metavar="K", help="the newest K groups of the journal (100)"
    )
    what.add_argument("--one", metavar="GROUP", help="one group; show each answer with its parts")
    what.add_argument(
        "--file",
        type=Path,
        metavar="FILE",
        help="JSON lines with query, answers and optionally reference, messages, rewards",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--rewards", type=Path, metavar="FILE", help="rewards file to test")
    how.add_argument("--hooks", type=Path, metavar="DIR", help="folder of hooks to test")
    parser.add_argument(
        "--weight",
        action="append",
        metavar="PART=W",
        help="change the weight of a part; repeatable",
    )
    parser.add_argument(
        "--pdb", action="store_true", help="with --one: score in this process, under the debugger"
    )
    parser.add_argument(
        "--yes",
        action="store_true",
        help="do not ask before judges are called; required without a terminal",
    )
    parser.add_argument("--all", action="store_true", help="print a line for every group")
    parser.add_argument("--json", action="store_true", help="print all groups as JSON")


def whole_number(text: str) -> int:
    """Parse a whole number of 1 or more.

    Raises:
        ArgumentTypeError: the text is something else.
    """
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a whole number: {one_line(text, 40)!r}") from None
    if number < 1:
        raise argparse.ArgumentTypeError("give 1 or more")
    return number


def reward_test(args: argparse.Namespace) -> int:
    """Score groups again and print the differences; change nothing.

    Raises:
        AjetError: the rewards do not load, or there is nothing to score.
    """
    from proxy.rewards.trial.source import TrialChoice

    if args.pdb and not args.one:
        raise UsageError("--pdb needs one group", todo="Give it with --one GROUP")
    home = existing_home(args)
    choice = TrialChoice(
        file=str(args.rewards or ""),
        hooks=str(args.hooks or ""),
        weights=weights_of(args.weight or ()),
    )
    settings = effective(args, home)
    bad: list[UsageError] = []
    cases = _cases(args, home, bad)
    if not args.yes:
        confirmed = _confirmed(home, settings, choice, cases)
        if confirmed is None:
            say("nothing was scored")
            return 1
        cases = confirmed
    if args.pdb:
        from console.cli.rewards.debug import debug

        return debug(home, settings, choice, next(cases))
    results, used = asyncio.run(_run(home, settings, choice, cases))
    code = _print(args, results, used)
    for error in bad[:SHOWN]:
        sys.stderr.write(f"skipped: {error}\n")
    return 1 if bad else code


def _confirmed(
    home: "Home", settings: "Settings", choice: "TrialChoice", cases: "Iterator[Case]"
) -> "Iterator[Case] | None":
    """Return the cases after the operator confirmed the judge calls; None after a refusal.

    Raises:
        UsageError: there are judges, and standard input is not a terminal.
    """
    from console.cli.rewards.cost import costs_of, has_judges

    try:
        if not has_judges(home, settings, choice):
            return cases
    except UsageError:  # the rewards do not load: the test reports each fault on its own line
        return cases
    all_cases = list(cases)
    costs = "; ".join(one.words for one in costs_of(home, settings, choice, all_cases))
    groups = count(len(all_cases), "group")
    act = f"Score {groups} with {costs}; verdicts from the cache cost nothing"
    return iter(all_cases) if confirm(act, "", yes=False) else None


def _cases(args: argparse.Namespace, home: "Home", bad: list[UsageError]) -> "Iterator[Case]":
    from proxy.rewards.trial.cases import cases_in, cases_of, full_id, newest_ids, pages

    if args.file:
        yield from cases_in(Path(args.file).expanduser(), bad)
        return
    from core.journal.read_only import JournalFile

    nothing = UsageError(
        "there are no groups to score",
        str(home.journal),
        "Send a request first, or give a file with --file",
    )
    if not home.journal.exists():
        raise nothing
    journal = JournalFile(home.journal)
    try:
        if args.one:
            group_cases = cases_of(journal, [full_id(journal, args.one)], include_untrained=True)
            if not group_cases:
                raise UsageError("no candidate of this group answered", f"--one {args.one}")
            yield from group_cases
            return
        ids = newest_ids(journal, args.last if args.last is not None else LAST)
        if not ids:
            raise nothing
        for page in pages(ids):
            yield from cases_of(journal, page)
    finally:
        journal.close()


async def _run(
    home: "Home", settings: "Settings", choice: "TrialChoice", cases: "Iterator[Case]"
) -> "tuple[list[TrialResult], TrialSource]":
    from proxy.rewards.trial.replay import rescore_all
    from proxy.rewards.trial.source import trial_source

    async with trial_source(home, settings, choice) as one:
        limit = settings.reward_limit
        return await rescore_all(one.source, cases, limit, concurrency=one.concurrency), one


# --- output -------------------------------------------------------------------------------------


def _print(args: argparse.Namespace, results: "list[TrialResult]", used: "TrialSource") -> int:
    from proxy.rewards.trial.replay import summary_of

    summary = summary_of(results, used.version)
    if args.json:
        data = {
            "summary": summary,
            "groups": [_data(one) for one in results],
            "judges": list(used.spent.values()),
        }
        say_json(data)
        return 1 if summary.abstained else 0
    if args.one:
        for line in parts_table(results[0]):
            say(line)
        say("")
    else:
        for line in _table(results, args.all):
            say(line)
    for line in summary_lines(summary):
        say(line)
    for judge in used.spent.values():
        cost = f", cost {judge.cost:.4f}" if judge.priced else ""
        calls = f"{count(judge.calls, 'call')}, {judge.hits} from the cache{cost}"
        say(f"judge {one_line(judge.judge, 40)}: {calls}")
    for trace in _traces(results):
        say(trace)
    return 1 if summary.abstained else 0


def _data(one: "TrialResult") -> dict[str, Any]:
    before, after = one.dead
    return {
        **msgspec.structs.asdict(one),
        "winner_before": one.winners[0],
        "winner_after": one.winners[1],
        "flip": one.flipped,
        "dead_before": before if one.compared else None,
        "dead_after": after if one.compared else None,
        "change": one.change,
    }


def _table(results: "list[TrialResult]", every: bool) -> Iterator[str]:
    """Yield a line for each group that changes; for every group when `every` is True."""
    shown = [one for one in results if every or not one.compared or sign(one)]
    head = f"{'group':<20}  {'query':<{_QUERY}}  {'before':<24}  {'now':<24}     s"
    if shown:
        yield head
    for one in shown if every else shown[:SHOWN]:
        query = one_line(one.query, _QUERY)
        now = "?" if one.abstained else _numbers(one.rewards)
        line = (
            f"{one_line(one.group_id, 20):<20}  {query:<{_QUERY}}  {_numbers(one.before):<24}"
            f"  {now:<24}  {one.seconds:.3f}  {sign(one)}"
        )
        yield line.rstrip()
        for score in one.after:
            if abs(score.reward) < SHOWN_AS_ZERO and (
                cause := held_down(score.parts, score.reward)
            ):
                yield f"{'':<20}  answer {score.index + 1} is 0: {one_line(cause, 80)}"
    if not every and len(shown) > SHOWN:
        yield f"{len(shown) - SHOWN} more: --all"
    if shown:
        yield ""


def sign(one: "TrialResult") -> str:
    """Describe what changes for a group; empty when nothing does."""
    if one.abstained:
        return f"abstains: {one_line(one.abstained, 70)}"
    before, after = one.dead
    if not one.compared:
        return ""
    if after and not before:
        return "dead now"
    if before and not after:
        return "trains now"
    winner, now = one.winners
    return f"winner {_place(winner)} to {_place(now)}" if one.flipped else ""


def _place(index: int | None) -> str:
    return "?" if index is None else str(index + 1)


def _numbers(rewards: Mapping[int, float]) -> str:
    return one_line(" ".join(f"{rewards[index]:.3g}" for index in sorted(rewards)), 24) or "-"


def parts_table(one: "TrialResult") -> Iterator[str]:
    """Yield one group in full: each answer with its parts, before and now."""
    yield f"group {one_line(one.group_id, 60)}: {one_line(one.query, 100)}"
    if one.note:
        yield f"  ({one.note})"
    if one.abstained:
        yield f"  abstains: {one_line(one.part, 40)}: {one_line(one.abstained, 300)}"
    for place, score in enumerate(one.after):
        then = _earlier(one, score.index)
        cause = held_down(score.parts, score.reward)
        why = f"  {one_line(cause, 80)}" if cause else ""
        yield f"  answer {score.index + 1}: {score.reward:.4g}{then}{why}"
        yield f"    {one_line(one.answers[place], 100)}"
        old = {part.name: part.value for part in one.parts_before.get(score.index, ())}
        for part in score.parts:
            kind = "gate" if part.gate else f"x {part.weight:.3g}" if part.weight else "noted"
            was = old.get(part.name)
            moved = "" if was is None or abs(was - part.value) < 5e-4 else f" (was {was:.3f})"
            values = f"{part.value:.3f} {kind:<8}{moved} {one_line(part.reason, 80)}"
            yield f"      {one_line(part.name, 24):<24} {values}".rstrip()


def _earlier(one: "TrialResult", index: int) -> str:
    """Return the earlier rewards of an answer in brackets; empty without any."""
    before, voted = one.before.get(index), one.hand.get(index)
    if voted is None:
        return "" if before is None else f"  (sent {before:.3g})"
    automatic = "" if before is None else f", automatic {before:.3g}"
    return f"  (by hand {voted:.3g}{automatic})"


def summary_lines(summary: TrialSummary) -> Iterator[str]:
    """Yield the summary of all groups, in lines."""
    took = f"{summary.seconds:.2f} s of scoring, the slowest group {summary.slowest:.3f} s"
    yield f"{count(summary.groups, 'group')}, version {summary.version or '?'}, {took}"
    if summary.compared:
        yield (
            f"winner flips {summary.flips} of {summary.compared}, "
            f"dead groups gained {summary.died}, lost {summary.revived} "
            f"({summary.dead_before} before, {summary.dead_after} now)"
        )
        yield (
            f"mean {summary.mean_before:.3f} to {summary.mean_after:.3f}, spread "
            f"{summary.spread_before:.3f} to {summary.spread_after:.3f}"
        )
    elif summary.groups > summary.abstained:
        yield "nothing to compare with: these groups have no earlier automatic rewards"
    if summary.gained:
        yield f"{count(summary.gained, 'group')} had no reward and now {_has(summary.gained)} one"
    if summary.outside:
        yield f"rewards leave 0 to 1 in {summary.outside} of {count(summary.groups, 'group')}"
    if summary.by_hand:
        yield f"human-rated: the same winner in {summary.by_hand_kept} of {summary.by_hand}"
    for one in summary.most:
        yield f"changes most: {change_text(one)}"
    for cause, times in summary.abstentions:
        yield f"abstained {times}: {one_line(cause, 200)}"
    for note, times in summary.notes:
        yield f"differs from the recorded group {times}: {one_line(note, 200)}"


def _has(number: int) -> str:
    return "has" if number == 1 else "have"


def change_text(one: TrialGroup) -> str:
    """Return a changed group on one line."""
    before = " ".join(f"{value:.3g}" for value in one.before)
    after = " ".join(f"{value:.3g}" for value in one.after)
    return f"{one_line(one.group_id, 24)}  {before} to {after}  {one_line(one.query, 60)}"


def _traces(results: "list[TrialResult]") -> Iterator[str]:
    """Yield each different traceback once, three at most."""
    seen = dict.fromkeys(one.traceback.rstrip() for one in results if one.traceback)
    yield from (f"\n{one}" for one in list(seen)[:3])
