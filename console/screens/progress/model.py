"""What the looks at the probe set show about a policy: sentences, prompts, points, ratings."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ajet_swarm.common.text import one_line
from console.models.advice import context_of
from console.text.causes import pause_words, worse_words
from core.events import BestComparison, LookEnded, PartFigures, PromptFigures
from core.events.progress import ProbePrompt, ProbeSetLoaded
from core.state import Progress, RunningLook, Server, State
from core.verdict.conclusion import CHANCE, Outcome, sentence
from core.verdict.pairs import pair_sentence

if TYPE_CHECKING:  # the command line reads `paused_servers`: no widgets
    from console.models.app_host import AppHost
    from console.session.app_state import Session

Value = TypeVar("Value")
LOOKS_OFF = "Looks are off: set `probe.share` above 0, restart the proxy"
MOVED = 0.005
"""Difference of two means above which a part has moved."""
TRAITS: Mapping[str, str] = {"length": "answer length", "repetition": "answer repetition"}
"""Names of the figures that are no part of the reward; a part may have the same name."""
HEAD = "Win rate of the current policy in blind pairs"
UNTRAINED = "The rows are answered untrained, and a later start does not repeat them."
"""What a run of the mock user loses while training is paused."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known about the present policy of one server."""

    sentence: str
    """The verdict, or why there is none; safe text in one line, without a full stop."""
    outcome: Outcome = "unknown"
    look: LookEnded | None = None
    """The look of the verdict; None without one."""
    baseline: LookEnded | None = None
    """The look that it is compared with; None before the first complete one."""
    running: str = ""
    """The running look in words; empty without one, or if the sentence is about it."""
    notes: tuple[str, ...] = ()
    """Further sentences: a policy below its best step, a pause, looks that are off, one without a
    result, a new comparison."""
    below_best: BestComparison | None = None
    """The best verified look that the look of the verdict is below with certainty; else None."""

    @property
    def worse_parts(self) -> str:
        """What is worse with certainty and not in the reward, with its means before and now."""
        parts = self.look.parts if self.look is not None else ()
        return worse_words([part for part in parts if part.worse_unseen])

    @property
    def tone(self) -> Outcome:
        """The outcome that gives sign and colour: without a verdict, below the best step is worse
        than nothing known; better is not, where something else is worse."""
        if self.outcome == "unknown" and (self.below_best or self.worse_parts):
            return "worse"
        return "unknown" if self.outcome == "better" and self.worse_parts else self.outcome


def progress_server(state: State) -> str:
    """Return the server whose progress is shown first; empty without a server.

    The first one with a look, else with a probe set, else the first one.
    """
    names = measured_servers(state)

    def rank(name: str) -> int:
        progress = state.progress.get(name) or Progress()
        if progress.looks or progress.running is not None:
            return 0
        return 1 if progress.probe_set is not None and not progress.probe_set.error else 2

    return min(names, key=rank, default="")


def measured_servers(state: State) -> list[str]:
    """Return the names of all servers, those that are gone but were measured last."""
    return list(dict.fromkeys([*state.servers, *state.progress]))


def has_progress(state: State) -> bool:
    """Return whether there is anything to say about the progress of a server."""
    progress = state.progress.get(progress_server(state))
    return progress is not None and (progress.probe_set is not None or bool(progress.looks))


def standing(state: State, name: str) -> Standing:
    """Return what is known about the present policy of a server."""
    progress = state.progress.get(name) or Progress()
    baseline, look = progress.baseline, progress.current
    running, notes, server = _running(progress), _notes(progress), state.servers.get(name)
    if look is not None and baseline is not None:
        text, outcome = _verdict_words(look, baseline, server, progress.probe_set)
        below = _below(look)
        if below is not None and outcome != "unknown":
            notes = (f"Below its best verified step: {_less(below, look)}", *notes)
        result = Standing(text, outcome, look, baseline, running, notes, below)
        worse = result.worse_parts
        return replace(result, sentence=f"{text}; worse: {worse}") if worse else result
    earlier = progress.newest
    if earlier is not None and earlier.verdict is not None:
        last = sentence(earlier.verdict)
        notes = (*notes, f"Last comparison, {_at(earlier.step)}: {last}")
    if baseline is not None:
        taken = f"Baseline taken {_at(baseline.step)}; the verdict follows the next look"
        return Standing(taken, baseline=baseline, running=running, notes=notes)
    return Standing(_before_baseline(progress), notes=notes)


def _verdict_words(
    look: LookEnded, baseline: LookEnded, server: Server | None, probe_set: ProbeSetLoaded | None
) -> tuple[str, Outcome]:
    """Return the sentence and the outcome; a look of an older step names its step."""
    here = f" {_at(look.step)}" if _is_old(look, server) else ""
    now = server.run_number if server is not None else 0
    if here and look.run and now and look.run != now:
        here += f" of training run {look.run}"
    if look.verdict is None:
        return f"No verdict from the look {_at(look.step)}", "unknown"
    verdict = look.verdict
    words = sentence(verdict)
    if verdict.outcome == "unknown" and (below := _below(look)) is not None:
        head = f"{here.strip()} below its best" if here else "below its best"
        less = _less(below, look)
        words = sentence(msgspec.structs.replace(verdict, more=None))
        return f"{_capital(head)}: {less}; than {_before(look, baseline)} {words}", "unknown"
    if verdict.outcome == "unknown":
        head, _, rest = words.partition(":")
        return f"{_capital(head)}{here}:{rest}", "unknown"
    than = "against" if look.mode == "wins" else "than"
    on = _prompts(verdict.prompts, probe_set)
    return f"{_capital(words)}{here} {than} {_before(look, baseline)}, on {on}", verdict.outcome


def _prompts(count: int, probe_set: ProbeSetLoaded | None) -> str:
    """Return `64 shipped prompts`, or `64 prompts of sums.jsonl`."""
    source = probe_set.source if probe_set is not None else ""
    noun = "prompt" if count == 1 else "prompts"
    if source == "shipped":
        return f"{count} shipped {noun}"
    return f"{count} {noun}" + (f" of {one_line(Path(source).name, 40)}" if source else "")


def _below(look: LookEnded) -> BestComparison | None:
    """Return the best look that a look is below with certainty; None if there is none."""
    compared = look.against_best
    return compared if compared is not None and compared.below else None


def _before(look: LookEnded, baseline: LookEnded) -> str:
    """Return the step of the baseline: `at step 1`, in mode `wins` `step 1`."""
    if baseline.step is None:
        return "the baseline" if look.mode == "wins" else "in the baseline"
    at = "" if look.mode == "wins" else "at "
    return f"{at}step {baseline.step}{_other_run(baseline.run, look.run)}"


def _other_run(run: int, now: int) -> str:
    """Return ` of training run 1` if that is not the current run; else nothing."""
    return f" of training run {run}" if run and now and run != now else ""


def _less(below: BestComparison, look: LookEnded) -> str:
    """Return `0.07 less (0.05 to 0.10) than at step 86`."""
    figures = f"{-below.effect:.2f} less ({-below.high:.2f} to {-below.low:.2f})"
    return f"{figures} than {_at(below.step)}{_other_run(below.run, look.run)}"


def _is_old(look: LookEnded, server: Server | None) -> bool:
    """Return whether the server has another policy than the one of the look."""
    if server is None or server.step is None or look.step is None:
        return False
    if server.run_number and look.run:
        return (server.step, server.run_number) != (look.step, look.run)
    return (server.step, server.engine_run) != (look.step, look.engine_run)


def _before_baseline(progress: Progress) -> str:
    """Return why there is no baseline yet."""
    probe_set = progress.probe_set
    if progress.running is not None:
        return f"First look: {answers(progress.running)}"
    if probe_set is not None and not probe_set.enabled:
        return LOOKS_OFF
    if probe_set is not None and probe_set.error:
        return _missing(probe_set)
    if progress.looks:
        return _without_result(progress.looks[-1], "First look")
    if probe_set is None:
        return "The probe set is not known yet"
    return f"No look yet: the first one, at {len(probe_set.prompts)} prompts, is the baseline"


def _running(progress: Progress) -> str:
    """Return the running look in words; empty before there is a baseline."""
    running = progress.running
    if running is None or progress.baseline is None:
        return ""
    word = "New baseline" if running.role == "baseline" else "Look"
    return f"{word} {_at(running.step)}: {answers(running)}"


def _notes(progress: Progress) -> tuple[str, ...]:
    """Return what is to be said beside the verdict or the baseline."""
    notes = []
    if progress.paused:
        notes.append(f"Training is paused, requests do not train: {one_line(progress.paused, 300)}")
    baseline, probe_set = progress.baseline, progress.probe_set
    missing = [_missing(probe_set)] if probe_set is not None and probe_set.error else []
    off = probe_set is not None and not probe_set.enabled
    if baseline is None:
        return (*notes, *(missing if off else ()))  # else the sentence is about it
    if off:
        notes.append(LOOKS_OFF)
    if not progress.looks[-1].complete:
        word = "The new baseline" if progress.looks[-1].role == "baseline" else "The look"
        notes.append(_without_result(progress.looks[-1], word))
    notes += missing
    if baseline.restarted:
        notes.append(f"New comparison with {_step(baseline)}: {one_line(baseline.restarted, 300)}")
    return tuple(notes)


def _missing(probe_set: ProbeSetLoaded) -> str:
    """Return why there is no probe set."""
    return f"No probe set: {one_line(probe_set.error, 300).removeprefix('no probe set: ')}"


def _without_result(look: LookEnded, word: str) -> str:
    """Return what happened to a look that is not complete: `The look at step 9 failed: ...`."""
    how = "was cut short" if look.outcome == "cut" else "failed"
    cause = f": {one_line(look.cause, 300)}" if look.cause else ""
    where = f" {_at(look.step)}" if look.step is not None else ""
    return f"{word}{where} {how}{cause}"


def answers(running: RunningLook) -> str:
    """Return the progress of a look: `120 of 512 answers`."""
    return f"{running.done} of {running.samples or '?'} answers"


def _at(step: int | None) -> str:
    return f"at {step_words(step)}"


def _step(look: LookEnded) -> str:
    return "this baseline" if look.step is None else f"step {look.step}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def restores(present: Standing, progress: Progress | None) -> str:
    """Return the step that a rewind restores, `step 86`; empty if the policy is not below its best,
    if no step was saved, and after a rewind."""
    best = progress.best if progress is not None else None
    if progress is None or best is None or present.look is None or present.below_best is None:
        return ""
    rewound = progress.rewound
    return "" if rewound is not None and rewound.at >= present.look.at else _step(best)


def rewind_words(progress: Progress) -> str:
    """Return the step that a rewind restores, and why; empty if there is none."""
    best = progress.best
    if best is None:
        return ""
    if best.verdict is None or best.role == "baseline":
        return f"No step is better with certainty: the baseline, {_step(best)}, is restored."
    return f"The best verified step is restored, {_step(best)}: {sentence(best.verdict)}."


def trust_loss(state: State, name: str) -> tuple[str, str]:
    """Return title and body of the question before a new baseline is taken."""
    server = state.servers.get(name)
    step = "the present step" if server is None or server.step is None else f"step {server.step}"
    present = standing(state, name)
    lines = [
        f"A new baseline is sampled at {step}. Later verdicts compare with it, not with "
        + (_step(present.baseline) if present.baseline is not None else "an earlier one")
        + "."
    ]
    if present.look is not None:
        lines.append(f"The verdict so far ends with it: {present.sentence}.")
    return f"Trust {step} as the new baseline?", "\n".join(lines)


# --- parts of the reward ---------------------------------------------------------------------


def part_weights(state: State, look: LookEnded) -> dict[str, float]:
    """Return the weight of each part in the reward of a look; empty if its parts are unknown.

    A gate multiplies the other parts: it has the weight of all of them together.
    """
    current = state.rewards
    known = current.parts if current.version == look.reward else ()
    parts = state.engine_runs.rewards.get(look.reward) or known
    enabled = [part for part in parts if part.enabled]
    total = sum(part.weight for part in enabled if not part.gate) or 1.0
    return {part.name: total if part.gate else part.weight for part in enabled}


def ordered_parts(look: LookEnded, weights: Mapping[str, float]) -> list[PartFigures]:
    """Return the figures of a look in the order of their importance.

    First what is worse and not in the reward; then the parts that moved or have a verdict, by their
    weight times their change; then length and repetition of the answers if they moved; then
    what is constant.

    Args:
        look: The look.
        weights: Weight by part; 1 for one that is missing.
    """

    def rank(figures: PartFigures) -> tuple[int, float]:
        if figures.worse_unseen:
            return -1, 0.0
        trait = not figures.outcome and figures.part in TRAITS
        change = 0.0 if figures.before is None else round(abs(figures.mean - figures.before), 6)
        if change <= MOVED and figures.outcome not in ("better", "worse"):
            return (3 if trait else 2), 0.0
        return (
            (1, 0.0) if trait else (0, -change * weights.get(figures.part, float(figures.counts)))
        )

    return sorted(look.parts, key=rank)


# --- prompts that changed --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PromptChange:
    """One probe prompt in the baseline and in the newest look; texts as the model wrote them."""

    probe: ProbePrompt
    was: PromptFigures
    """Its results in the baseline."""
    present: PromptFigures
    """Its results in the look."""
    wins: bool = False
    """Whether the look counts wins over the baseline, instead of rewards."""

    @property
    def id(self) -> str:
        """Id of the prompt."""
        return self.probe.id

    @property
    def before(self) -> float | None:
        """Mean reward in the baseline; None for comparisons."""
        return fmean(self.was.rewards) if self.was.rewards and not self.wins else None

    @property
    def now(self) -> float:
        """Mean reward in the look; for comparisons the win rate."""
        return fmean(self.present.rewards)

    @property
    def likeliest(self) -> bool:
        """Whether both texts are the answers of greatest probability; else each is one of several
        random samples, which differ without a change of the policy, too."""
        return bool(self.was.answer and self.present.answer)

    @property
    def texts(self) -> tuple[str, str]:
        """The answers to compare: those of greatest probability, else the first samples."""
        was, now = self.was, self.present
        if self.likeliest:
            return was.answer, now.answer
        return was.example or was.answer, now.example or now.answer

    @property
    def change(self) -> float:
        """Difference of the means; for comparisons the distance to an even win rate."""
        return self.now - (CHANCE if self.before is None else self.before)

    @property
    def same_text(self) -> bool:
        """Whether both answers are equal."""
        before, now = self.texts
        return before == now


def prompt_changes(progress: Progress) -> list[PromptChange]:
    """Return the prompts of the newest look, those whose mean reward changed most first.

    Where it changed equally, other answers come before equal ones.
    """
    look, probe_set = progress.current, progress.probe_set
    if look is None:
        return []
    known = {now.id: ProbePrompt(id=now.id, prompt=now.id) for now in progress.now}
    known |= {prompt.id: prompt for prompt in (probe_set.prompts if probe_set else ())}
    before, wins = {figures.id: figures for figures in progress.before}, look.mode != "absolute"
    changes = [
        PromptChange(known[now.id], before[now.id], now, wins)
        for now in progress.now
        if now.rewards and now.id in before
    ]

    def rank(change: PromptChange) -> tuple[float, bool, str]:
        return -round(abs(change.change), 9), change.same_text, change.probe.prompt

    return sorted(changes, key=rank)


# --- points of the chart ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LookPoint:
    """The mean of one complete look with its interval."""

    step: int
    mean: float
    low: float
    high: float
    is_baseline: bool
    is_current: bool
    """It belongs to the comparison in use."""


def newest_runs(values: Iterable[tuple[int, int, Value]]) -> list[Value]:
    """Return the values in the order of their steps; steps that a later engine run repeats are
    taken from that run only.

    Args:
        values: Engine run, step and value, in the order of the runs.
    """
    points: list[tuple[int, int, Value]] = []
    for run, step, value in values:
        points = [point for point in points if point[0] == run or point[1] < step]
        points.append((run, step, value))
    return [value for _, _, value in sorted(points, key=lambda point: point[1])]


def look_points(progress: Progress) -> list[LookPoint]:
    """Return the complete looks with a known step and the scale of the newest, in order.

    Steps that a later run of the engine repeats are taken from that run only. A baseline of
    comparisons has no mean of its own: it is drawn at an even win rate.
    """
    complete = [look for look in progress.looks if look.complete and look.step is not None]
    baseline = progress.baseline
    points: list[tuple[int, int, LookPoint]] = []
    for look in complete:
        assert look.step is not None
        if look.mode == complete[-1].mode:
            first = look.role == "baseline"
            current = baseline is not None and baseline.look_id in (look.look_id, look.baseline_id)
            even = first and look.mode == "wins"
            mean, low, high = (CHANCE,) * 3 if even else (look.mean, look.low, look.high)
            point = LookPoint(look.step, mean, low, high, first, current)
            points.append((look.engine_run, look.step, point))
    return newest_runs(points)


def is_wins(progress: Progress) -> bool:
    """Return whether the newest complete look is scored by comparisons."""
    return next((look.mode == "wins" for look in reversed(progress.looks) if look.complete), False)


# --- blind pairs -----------------------------------------------------------------------------


def step_words(step: int | None) -> str:
    """Return `step 7`, or that it is unknown."""
    return "an unknown step" if step is None else f"step {step}"


def ratings_sentence(progress: Progress | None) -> str:
    """Return the estimates in one line; empty before the first rating."""
    ratings = progress.pair_ratings if progress is not None else None
    if ratings is None or ratings.figures is None:
        return ""
    now, before = step_words(ratings.step), step_words(ratings.baseline_step)
    skipped = f"; {ratings.skipped} skipped" if ratings.skipped else ""
    return f"{HEAD}, {now} against {before}: {pair_sentence(ratings.figures)}{skipped}"


def bias_sentence(progress: Progress | None) -> str:
    """Return the parts whose win rate differs from the raters' beyond their interval.

    Empty if there is none.
    """
    ratings = progress.pair_ratings if progress is not None else None
    figures = ratings.figures if ratings is not None else None
    words = [
        f"{one_line(name, 40)} {'over' if interval.estimate > 0 else 'under'}rates now by "
        f"{abs(interval.estimate):.2f} ({interval.low:.2f} to {interval.high:.2f})"
        for name, interval in (figures.parts if figures is not None else ())
        if interval.low > 0.0 or interval.high < 0.0
    ]
    return f"Against the ratings: {', '.join(words)}" if words else ""


def ratings_data(progress: Progress | None) -> dict[str, Any] | None:
    """Return the estimates as JSON; None before the first rating."""
    ratings = progress.pair_ratings if progress is not None else None
    if ratings is None or (figures := ratings.figures) is None:
        return None
    return {
        "step": ratings.step,
        "baseline_step": ratings.baseline_step,
        "ratings": figures.ratings,
        "skipped": ratings.skipped,
        "pairs": ratings.counts.different,
        "same_text": ratings.counts.same,
        "automatic": figures.automatic,
        "human": msgspec.to_builtins(figures.human),
        "agreement": msgspec.to_builtins(figures.agreement),
        "parts": {name: msgspec.to_builtins(interval) for name, interval in figures.parts},
    }


def ratings_key(progress: Progress) -> tuple[str, int]:
    """Return what changes with each vote: the look, and the number of its votes."""
    ratings = progress.pair_ratings
    return (ratings.look_id, len(ratings.pairs)) if ratings is not None else ("", 0)


# --- pauses ----------------------------------------------------------------------------------


def paused_servers(state: State) -> str:
    """Return on which servers training is paused, and why; empty if it is not."""
    known = {name: state.progress.get(name) for name in state.servers}
    return "; ".join(
        pause_words(name, progress.paused)
        for name, progress in known.items()
        if progress is not None and progress.paused
    )


def pause_text(session: "Session") -> str:
    """Return on which servers training is paused, and how to resume it; empty if it is not."""
    words, context = paused_servers(session.state), context_of(session)
    if not words:
        return ""
    screen, key = context.screens["progress"], context.keys["progress.resume"]
    todo = "" if context.read_only else f" {screen} then {key} resumes"
    return f"{words[0].upper()}{words[1:]}: nothing is trained.{todo}"


async def mock_start_args(app: "AppHost", **args: Any) -> dict[str, Any] | None:
    """Return the arguments that start the mock user; ask first while training is paused.

    Args:
        app: The console.
        args: Arguments of `mock.start`.

    Returns:
        The arguments, with the permission to run untrained; None if the operator declines.
    """
    pause = pause_text(app.session)
    if not pause:
        return args
    agreed = await app.confirm("Start without training?", f"{pause}\n\n{UNTRAINED}", "Start")
    return {**args, "override": True} if agreed else None
