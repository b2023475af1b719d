"""`reward-test`: the rewards on stored groups or on a file, before they count for anything."""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import one_line
from console.cli.common import confirm, count, open_home, say, say_json
from console.cli.effective import effective
from console.cli.options import add_note
from console.text.causes import NOTHING, held_down
from core.events import TrialGroup, TrialSummary

if TYPE_CHECKING:
    from core.runtime.home import Home
    from core.settings import Settings
    from proxy.rewards.trial.replay import Case, TrialResult
    from proxy.rewards.trial.source import TrialChoice, TrialSource

LAST = 100
SHOWN = 40
"""Groups of the table, unless all are asked for."""
_QUERY = 40


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.set_defaults(handler=reward_test)
    add_note(
        parser,
        "         ajet-console reward-test --weight length=0.1 --weight diversity=0.6",
        "         ajet-console reward-test --one g3f2 --hooks ./my_hooks --pdb",
        "Exit code: 0 all groups got rewards, 1 one abstained or the rewards do not load, "
        "2 wrong use.",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--last", type=whole_number, metavar="K", help="the newest K groups of the journal; 100"
    )
    what.add_argument("--one", metavar="GROUP", help="one group, each answer with its parts")
    what.add_argument(
        "--file",
        type=Path,
        metavar="FILE",
        help="JSON lines of query, answers and perhaps reference, messages, rewards",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--rewards", type=Path, metavar="FILE", help="rewards file to try")
    how.add_argument("--hooks", type=Path, metavar="DIR", help="folder of hooks to try")
    parser.add_argument(
        "--weight",
        action="append",
        metavar="PART=W",
        help="another weight for a part; repeat it for several",
    )
    parser.add_argument(
        "--pdb", action="store_true", help="with --one: in this process, under the debugger"
    )
    parser.add_argument(
        "--yes", action="store_true", help="do not ask before a judge is; needed without a terminal"
    )
    parser.add_argument("--all", action="store_true", help="a line for every group")
    parser.add_argument("--json", action="store_true", help="the same as JSON, all groups")


def whole_number(text: str) -> int:
    """The number, 1 or more.

    Raises:
        ArgumentTypeError: it is none.
    """
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a whole number: {one_line(text, 40)!r}") from None
    if number < 1:
        raise argparse.ArgumentTypeError("give 1 or more")
    return number


def reward_test(args: argparse.Namespace) -> int:
    """Score groups anew and say what would have been otherwise; changes nothing.

    Raises:
        AjetError: the rewards do not load, or there is nothing to score.
    """
    from proxy.rewards.trial.source import TrialChoice

    if args.pdb and not args.one:
        raise UsageError("--pdb needs one group", todo="Give it with --one GROUP")
    home = open_home(args)
    choice = TrialChoice(
        file=str(args.rewards or ""),
        hooks=str(args.hooks or ""),
        weights=weights_of(args.weight or ()),
    )
    settings = effective(args, home)
    bad: list[UsageError] = []
    cases = _cases(args, home, bad)
    if not args.yes:
        asked = _asked_about(home, settings, choice, cases)
        if asked is None:
            say("nothing was changed")
            return 1
        cases = asked
    if args.pdb:
        from console.cli.rewards.debug import debug

        return debug(home, settings, choice, next(cases))
    results, used = asyncio.run(_run(home, settings, choice, cases))
    code = _tell(args, results, used)
    for error in bad[:SHOWN]:
        sys.stderr.write(f"left out: {error}\n")
    return 1 if bad else code


def _asked_about(
    home: "Home", settings: "Settings", choice: "TrialChoice", cases: "Iterator[Case]"
) -> "Iterator[Case] | None":
    """The cases, after a yes to what the judges would be asked; None after a no.

    Raises:
        UsageError: there are judges, and nobody is there to ask.
    """
    from console.cli.rewards.cost import costs_of, has_judges

    try:
        if not has_judges(home, settings, choice):
            return cases
    except UsageError:  # the rewards do not load: the trial says so, each fault on its line
        return cases
    kept = list(cases)
    told = "; ".join(one.words for one in costs_of(home, settings, choice, kept))
    act = f"Score {count(len(kept), 'group')} with {told}; verdicts in the cache cost none"
    return iter(kept) if confirm(act, "", yes=False) else None


def weights_of(given: Sequence[str]) -> dict[str, float]:
    """`PART=WEIGHT` as numbers by part.

    Raises:
        UsageError: it is something else.
    """
    found = {}
    for one in given:
        name, sign, text = one.partition("=")
        try:
            found[name.strip()] = value = float(text)
        except ValueError:
            sign = ""
        if not sign or not name.strip() or not abs(value) <= 1e6:
            raise UsageError(
                "a weight is PART=NUMBER", f"--weight {one_line(one, 40)}", "As in length=0.5"
            )
    return found


def _cases(args: argparse.Namespace, home: "Home", bad: list[UsageError]) -> "Iterator[Case]":
    from proxy.rewards.trial.cases import cases_in, cases_of, full_id, newest_ids, pages

    if args.file:
        yield from cases_in(Path(args.file).expanduser(), bad)
        return
    from core.journal.read_only import JournalFile

    nothing = UsageError(
        "there are no groups to re-score",
        str(home.journal),
        "Ask something first, or give a file with --file",
    )
    if not home.journal.exists():
        raise nothing
    journal = JournalFile(home.journal)
    try:
        if args.one:
            found = cases_of(journal, [full_id(journal, args.one)], every=True)
            if not found:
                raise UsageError("no candidate of this group answered", f"--one {args.one}")
            yield from found
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


# --- telling ------------------------------------------------------------------------------------


def _tell(args: argparse.Namespace, results: "list[TrialResult]", used: "TrialSource") -> int:
    from proxy.rewards.trial.replay import summary_of

    found = summary_of(results, used.version)
    if args.json:
        data = {
            "summary": found,
            "groups": [_data(one) for one in results],
            "judges": list(used.spent.values()),
        }
        say_json(data)
        return 1 if found.abstained else 0
    if args.one:
        for line in parts_table(results[0]):
            say(line)
        say("")
    else:
        for line in _table(results, args.all):
            say(line)
    for line in summary_lines(found):
        say(line)
    for judge in used.spent.values():
        cost = f", cost {judge.cost:.4f}" if judge.priced else ""
        said = f"{count(judge.calls, 'call')}, {judge.hits} from the cache{cost}"
        say(f"judge {one_line(judge.judge, 40)}: {said}")
    for trace in _traces(results):
        say(trace)
    return 1 if found.abstained else 0


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
    """A line for each group that comes out otherwise; or for all of them."""
    shown = [one for one in results if every or not one.compared or sign(one)]
    head = f"{'group':<20}  {'query':<{_QUERY}}  {'as sent':<24}  {'now':<24}     s"
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
            if abs(score.reward) < NOTHING and (cause := held_down(score.parts, score.reward)):
                yield f"{'':<20}  answer {score.index + 1} is 0: {one_line(cause, 80)}"
    if not every and len(shown) > SHOWN:
        yield f"{len(shown) - SHOWN} more: --all"
    if shown:
        yield ""


def sign(one: "TrialResult") -> str:
    """What is otherwise than it was; empty for nothing."""
    if one.abstained:
        return f"abstains: {one_line(one.abstained, 70)}"
    before, after = one.dead
    if not one.compared:
        return ""
    if after and not before:
        return "dead now"
    if before and not after:
        return "teaches now"
    winner, now = one.winners
    return f"winner {_place(winner)} to {_place(now)}" if one.flipped else ""


def _place(index: int | None) -> str:
    return "?" if index is None else str(index + 1)


def _numbers(rewards: Mapping[int, float]) -> str:
    return one_line(" ".join(f"{rewards[index]:.3g}" for index in sorted(rewards)), 24) or "-"


def parts_table(one: "TrialResult") -> Iterator[str]:
    """One group in full: each answer with its parts, before and now."""
    yield f"group {one_line(one.group_id, 60)}: {one_line(one.query, 100)}"
    if one.note:
        yield f"  ({one.note})"
    if one.abstained:
        yield f"  abstains: {one_line(one.part, 40)}: {one_line(one.abstained, 300)}"
    for place, score in enumerate(one.after):
        before = one.before.get(score.index)
        then = "" if before is None else f"  (sent {before:.3g})"
        cause = held_down(score.parts, score.reward)
        why = f"  {one_line(cause, 80)}" if cause else ""
        yield f"  answer {score.index + 1}: {score.reward:.4g}{then}{why}"
        yield f"    {one_line(one.answers[place], 100)}"
        old = {part.name: part.value for part in one.parts_before.get(score.index, ())}
        for part in score.parts:
            kind = "gate" if part.gate else f"x {part.weight:.3g}" if part.weight else "noted"
            was = old.get(part.name)
            moved = "" if was is None or abs(was - part.value) < 5e-4 else f" (was {was:.3f})"
            said = f"{part.value:.3f} {kind:<8}{moved} {one_line(part.reason, 80)}"
            yield f"      {one_line(part.name, 24):<24} {said}".rstrip()


def summary_lines(found: TrialSummary) -> Iterator[str]:
    """What the groups came to, in lines."""
    took = f"{found.seconds:.2f} s of scoring, the slowest group {found.slowest:.3f} s"
    yield f"{count(found.groups, 'group')}, version {found.version or '?'}, {took}"
    if found.compared:
        yield (
            f"winner flips {found.flips} of {found.compared}, dead groups gained {found.died}, "
            f"lost {found.revived} ({found.dead_before} before, {found.dead_after} now)"
        )
        yield (
            f"mean {found.mean_before:.3f} to {found.mean_after:.3f}, spread "
            f"{found.spread_before:.3f} to {found.spread_after:.3f}"
        )
    elif found.groups > found.abstained:
        yield "nothing to compare with: no rewards were sent for these"
    if found.gained:
        yield f"{count(found.gained, 'group')} had no reward and now {_has(found.gained)} one"
    if found.outside:
        yield f"rewards leave 0 to 1 in {found.outside} of {count(found.groups, 'group')}"
    if found.by_hand:
        yield f"human-rated: the same winner in {found.by_hand_kept} of {found.by_hand}"
    for one in found.most:
        yield f"changes most: {change_text(one)}"
    for cause, times in found.abstentions:
        yield f"abstained {times}: {one_line(cause, 200)}"
    for note, times in found.notes:
        yield f"differs from then {times}: {one_line(note, 200)}"


def _has(number: int) -> str:
    return "has" if number == 1 else "have"


def change_text(one: TrialGroup) -> str:
    """A group that changes, on one line."""
    before = " ".join(f"{value:.3g}" for value in one.before)
    after = " ".join(f"{value:.3g}" for value in one.after)
    return f"{one_line(one.group_id, 24)}  {before} to {after}  {one_line(one.query, 60)}"


def _traces(results: "list[TrialResult]") -> Iterator[str]:
    """Each traceback once."""
    seen = dict.fromkeys(one.traceback.rstrip() for one in results if one.traceback)
    yield from (f"\n{one}" for one in list(seen)[:3])
