"""`rewards test`: score stored groups or a file with new rewards, before using them in training."""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from click import IntRange

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line, plural
from console.cli.common import effective, existing_home
from console.cli.options import Args, flag, one_of, option, takes
from console.cli.output import agree, say_result
from console.text.causes import SHOWN_AS_ZERO, held_down
from console.text.values import fields_of
from core.commands.rewards import weights_of
from core.events import TrialGroup, TrialSummary
from core.runtime.home import Home
from core.settings import Settings

if TYPE_CHECKING:
    from proxy.rewards.model.spec import PartSpec
    from proxy.rewards.rescore.cases import Case, Rescored
    from proxy.rewards.rescore.rescorer import Rescorer, RewardChoice

LAST = 100
SHOWN = 40
"""Groups in the table, unless `--all` is given."""
_QUERY = 40
_NO_ABSTENTION = {"part": "", "traceback": "", "file": "", "line": 0}


@takes(
    one_of(
        option("--last K", "the newest K groups of the journal (100)", type=IntRange(1)),
        option("--one GROUP", "one group; show each answer with its parts"),
        option(
            "--file FILE",
            "JSON lines with query, answers and optionally reference, messages, rewards",
            type=Path,
        ),
    ),
    one_of(
        option("--rewards FILE", "rewards file to test", type=Path),
        option("--hooks DIR", "folder of hooks to test", type=Path),
    ),
    option("--weight PART=W", "change the weight of a part; repeatable", multiple=True),
    flag("--pdb", "with --one: score in this process, under the debugger"),
    flag("--yes", "do not ask before judges are called; required without a terminal"),
    flag("--all", "print a line for every group"),
    notes=(
        "         ajet-console rewards test --weight length=0.1 --weight diversity=0.6",
        "         ajet-console rewards test --one 3f2a --hooks ./my_hooks --pdb",
        "Exit code: 0 all groups got rewards, 1 a group abstained or the rewards do not load, 2 "
        "wrong use.",
    ),
)
def reward_test(args: Args) -> int:
    """Score groups again and print the differences; change nothing.

    Raises:
        AjetError: the rewards do not load, or there is nothing to score.
    """
    from proxy.rewards.rescore.rescorer import RewardChoice

    if args.pdb and not args.one:
        raise UsageError("--pdb needs one group", todo="Give it with --one GROUP")
    home = existing_home(args)
    choice = RewardChoice(
        file=str(args.rewards or ""),
        hooks=str(args.hooks or ""),
        weights=weights_of(args.weight or ()),
    )
    settings = effective(args, home)
    cases, faults = _cases(args, home)
    if not args.yes:
        _ask_about_calls(home, settings, choice, cases)
    if args.pdb:
        from console.cli.rewards.debug import debug

        return debug(home, settings, choice, cases[0])
    results, used = asyncio.run(_run(home, settings, choice, cases))
    code = _print(args, results, used)
    for fault in faults[:SHOWN]:
        sys.stderr.write(f"skipped: {fault}\n")
    return 1 if faults else code


def _cases(args: Args, home: Home) -> "tuple[list[Case], list[UsageError]]":
    """Return the groups to score, and the faults of invalid lines of a file."""
    from proxy.rewards.rescore.cases import cases_in, group_case, newest_cases

    if args.file:
        return cases_in(Path(args.file).expanduser())
    from core.journal.read_only import JournalFile

    cases: list[Case] = []
    if home.journal.exists():
        journal = JournalFile(home.journal)
        if args.one:
            cases = [group_case(journal, args.one)]
        else:
            cases = newest_cases(journal, LAST if args.last is None else args.last)
    if not cases:
        raise UsageError(
            "there are no groups to score",
            str(home.journal),
            "Send a request first, or give a file with --file",
        )
    return cases, []


async def _run(
    home: Home, settings: Settings, choice: "RewardChoice", cases: "Sequence[Case]"
) -> "tuple[list[Rescored], Rescorer]":
    from proxy.rewards.rescore.rescorer import rescorer

    async with rescorer(home, settings, choice) as trial:
        return await trial.run(cases), trial


# --- the cost of judges --------------------------------------------------------------------------

_INSTRUCTION_CHARS = 2_000
"""Approximate number of characters of instructions and rubric in a prompt."""
_TOKEN_CHARS = 4
"""Approximate number of characters per token."""


class JudgeCost(msgspec.Struct, frozen=True):
    """Upper bounds for the calls of one judge; verdicts from its cache cost nothing."""

    name: str
    calls: int
    prompt_tokens: int
    """Estimated from the texts, with 4 characters per token."""
    cost: float | None
    """Assumes replies of maximum length; None without prices."""

    @property
    def words(self) -> str:
        """`judge helpful: at most 300 calls, cost at most 0.12`."""
        price = "cost unknown (no price_in, price_out)"
        if self.cost is not None:
            price = f"cost at most about {self.cost:.2f}"
        calls = f"at most {plural(self.calls, 'call')}, about {self.prompt_tokens:,} prompt tokens"
        return f"judge {one_line(self.name, 40)}: {calls}, {price}"


def _ask_about_calls(
    home: Home, settings: Settings, choice: "RewardChoice", cases: "Sequence[Case]"
) -> None:
    """Ask before judges are called; without a question if none is.

    Raises:
        UsageError: there are judges, and standard input is not a terminal.
        Declined: the operator says no.
    """
    from proxy.rewards.rescore.rescorer import model_of

    try:
        model, _ = model_of(home, settings, choice)
    except AjetError:  # the rewards do not load: the test reports each fault on its own line
        return
    costs = [cost_of(spec, cases) for spec in model.active if spec.kind == "judge"]
    if costs:
        act = f"Score {plural(len(cases), 'group')} with {'; '.join(cost.words for cost in costs)}"
        agree(f"{act}; verdicts from the cache cost nothing", otherwise="nothing was scored")


def cost_of(spec: "PartSpec", cases: "Sequence[Case]") -> JudgeCost:
    """Return the estimate of one judge for these cases."""
    from proxy.rewards.part import KINDS

    def setting(name: str) -> Any:
        return spec.settings.get(name, KINDS["judge"].settings[name].default)

    calls = chars = 0
    for case in cases:
        context = case.context
        case_calls, times = _calls(setting("mode"), len(context.answers))
        talk = sum(len(str(message.get("content") or "")) for message in context.messages)
        answers = sum(
            min(len(str(answer.message.get("content") or "")), setting("answer_chars"))
            for answer in context.answers
        )
        calls += case_calls
        chars += (
            case_calls * (min(talk, setting("conversation_chars")) + _INSTRUCTION_CHARS)
            + times * answers
        )
    tokens = chars // _TOKEN_CHARS
    price_in, price_out = setting("price_in"), setting("price_out")
    cost = None
    if price_in is not None or price_out is not None:
        replies = calls * setting("max_tokens")
        cost = (tokens * (price_in or 0.0) + replies * (price_out or 0.0)) / 1e6
    return JudgeCost(spec.name, calls, tokens, cost)


def _calls(mode: str, n: int) -> tuple[int, int]:
    """Return the calls for a group of `n` answers, and how many of them contain each answer."""
    if mode == "pointwise":
        return n, 1
    if mode == "pairwise":
        return n * (n - 1), 2 * (n - 1)
    return 1, 1


# --- output -------------------------------------------------------------------------------------


def _print(args: Args, results: "list[Rescored]", used: "Rescorer") -> int:
    from proxy.rewards.rescore.cases import summary_of

    summary = summary_of(results, used.version)
    data = {
        "summary": summary,
        "groups": [_data(result) for result in results],
        "judges": list(used.spent.values()),
    }
    lines = [*parts_table(results[0]), ""] if args.one else list(_table(results, args.all))
    lines += summary_lines(summary)
    for judge in used.spent.values():
        cost = f", cost {judge.cost:.4f}" if judge.priced else ""
        calls = f"{plural(judge.calls, 'call')}, {judge.hits} from the cache{cost}"
        lines.append(f"judge {one_line(judge.judge, 40)}: {calls}")
    say_result(args, data, [*lines, *_traces(results)])
    return 1 if summary.abstained else 0


def _data(rescored: "Rescored") -> dict[str, Any]:
    before, after = rescored.dead if rescored.compared else (None, None)
    case, why = rescored.case, rescored.abstention
    abstention = fields_of(why, "part traceback file line") if why is not None else _NO_ABSTENTION
    return {
        **fields_of(rescored, "group_id after seconds change"),
        **fields_of(case, "before hand source note"),
        **abstention,
        "query": case.context.query,
        "answers": _texts(rescored),
        "parts_before": case.parts,
        "version_before": case.version,
        "abstained": why.cause if why is not None else "",
        "winner_before": rescored.winners[0],
        "winner_after": rescored.winners[1],
        "flip": rescored.flipped,
        "dead_before": before,
        "dead_after": after,
    }


def _texts(rescored: "Rescored") -> list[str]:
    return [str(answer.message.get("content") or "") for answer in rescored.case.context.answers]


def _table(results: "list[Rescored]", every: bool) -> Iterator[str]:
    """Yield a line for each group that changes; for every group when `every` is True."""
    shown = [result for result in results if every or not result.compared or sign(result)]
    head = f"{'group':<20}  {'query':<{_QUERY}}  {'before':<24}  {'now':<24}     s"
    if shown:
        yield head
    for rescored in shown if every else shown[:SHOWN]:
        query = one_line(rescored.case.context.query, _QUERY)
        now = "?" if rescored.abstention else _numbers(rescored.rewards)
        line = (
            f"{one_line(rescored.group_id, 20):<20}  {query:<{_QUERY}}  "
            f"{_numbers(rescored.case.before):<24}  {now:<24}  {rescored.seconds:.3f}  "
            f"{sign(rescored)}"
        )
        yield line.rstrip()
        for score in rescored.after:
            if abs(score.reward) < SHOWN_AS_ZERO and (
                cause := held_down(score.parts, score.reward)
            ):
                yield f"{'':<20}  answer {score.index + 1} is 0: {one_line(cause, 80)}"
    if not every and len(shown) > SHOWN:
        yield f"{len(shown) - SHOWN} more: --all"
    if shown:
        yield ""


def sign(rescored: "Rescored") -> str:
    """Describe what changes for a group; empty when nothing does."""
    if rescored.abstention is not None:
        return f"abstains: {one_line(rescored.abstention.cause, 70)}"
    before, after = rescored.dead
    if not rescored.compared:
        return ""
    if after and not before:
        return "dead now"
    if before and not after:
        return "trains now"
    winner, now = rescored.winners
    return f"winner {_place(winner)} to {_place(now)}" if rescored.flipped else ""


def _place(index: int | None) -> str:
    return "?" if index is None else str(index + 1)


def _numbers(rewards: Mapping[int, float]) -> str:
    return one_line(" ".join(f"{rewards[index]:.3g}" for index in sorted(rewards)), 24) or "-"


def parts_table(rescored: "Rescored") -> Iterator[str]:
    """Yield one group in full: each answer with its parts, before and now."""
    yield f"group {one_line(rescored.group_id, 60)}: {one_line(rescored.case.context.query, 100)}"
    if rescored.case.note:
        yield f"  ({rescored.case.note})"
    if (why := rescored.abstention) is not None:
        yield f"  abstains: {one_line(why.part, 40)}: {one_line(why.cause, 300)}"
    texts = _texts(rescored)
    for place, score in enumerate(rescored.after):
        then = _earlier(rescored, score.index)
        cause = held_down(score.parts, score.reward)
        low = f"  {one_line(cause, 80)}" if cause else ""
        yield f"  answer {score.index + 1}: {score.reward:.4g}{then}{low}"
        yield f"    {one_line(texts[place], 100)}"
        old = {part.name: part.value for part in rescored.case.parts.get(score.index, ())}
        for part in score.parts:
            kind = "gate" if part.gate else f"x {part.weight:.3g}" if part.weight else "noted"
            was = old.get(part.name)
            moved = "" if was is None or abs(was - part.value) < 5e-4 else f" (was {was:.3f})"
            values = f"{part.value:.3f} {kind:<8}{moved} {one_line(part.reason, 80)}"
            yield f"      {one_line(part.name, 24):<24} {values}".rstrip()


def _earlier(rescored: "Rescored", index: int) -> str:
    """Return the earlier rewards of an answer in brackets; empty without any."""
    before, voted = rescored.case.before.get(index), rescored.case.hand.get(index)
    if voted is None:
        return "" if before is None else f"  (sent {before:.3g})"
    automatic = "" if before is None else f", automatic {before:.3g}"
    return f"  (by hand {voted:.3g}{automatic})"


def summary_lines(summary: TrialSummary) -> Iterator[str]:
    """Yield the summary of all groups, in lines."""
    took = f"{summary.seconds:.2f} s of scoring, the slowest group {summary.slowest:.3f} s"
    yield f"{plural(summary.groups, 'group')}, version {summary.version or '?'}, {took}"
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
        verb = "has" if summary.gained == 1 else "have"
        yield f"{plural(summary.gained, 'group')} had no reward and now {verb} one"
    if summary.outside:
        yield f"rewards leave 0 to 1 in {summary.outside} of {plural(summary.groups, 'group')}"
    if summary.by_hand:
        yield f"human-rated: the same winner in {summary.by_hand_kept} of {summary.by_hand}"
    for trial in summary.most:
        yield f"changes most: {change_text(trial)}"
    for cause, times in summary.abstentions:
        yield f"abstained {times}: {one_line(cause, 200)}"
    for note, times in summary.notes:
        yield f"differs from the recorded group {times}: {one_line(note, 200)}"


def change_text(trial: TrialGroup) -> str:
    """Return a changed group on one line."""
    before = " ".join(f"{value:.3g}" for value in trial.before)
    after = " ".join(f"{value:.3g}" for value in trial.after)
    return f"{one_line(trial.group_id, 24)}  {before} to {after}  {one_line(trial.query, 60)}"


def _traces(results: "list[Rescored]") -> Iterator[str]:
    """Yield each different traceback once, three at most."""
    seen = dict.fromkeys(
        result.abstention.traceback.rstrip()
        for result in results
        if result.abstention and result.abstention.traceback
    )
    yield from (f"\n{text}" for text in list(seen)[:3])
