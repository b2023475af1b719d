"""What the looks at the probe set show about a policy, in sentences."""

from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from ajet_swarm.common.text import one_line
from console.text.causes import worse_words
from core.events import BestComparison, LookEnded
from core.events.progress import ProbeSetLoaded
from core.state import Progress, RunningLook, Server, State
from core.verdict.conclusion import Outcome, sentence

LOOKS_OFF = "Looks are off: set `probe.share` above 0, restart the proxy"


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
    names = [*state.servers, *(name for name in state.progress if name not in state.servers)]
    for known in (_has_looks, _has_prompts):
        for name in names:
            if name in state.progress and known(state.progress[name]):
                return name
    return next(iter(names), "")


def _has_looks(progress: Progress) -> bool:
    return bool(progress.looks) or progress.running is not None


def _has_prompts(progress: Progress) -> bool:
    return progress.probe_set is not None and not progress.probe_set.error


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
        words = sentence(structs.replace(verdict, more=None))
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
    """Return ` of training run 1` if that is another run than the one of now; else nothing."""
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
    return "at an unknown step" if step is None else f"at step {step}"


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
