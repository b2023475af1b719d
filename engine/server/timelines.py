"""An episode's calls merged into timelines, so that each sampled token is trained once.

A call whose prompt begins with all that an earlier call read and drew goes on with that call's
timeline: one sequence through the network teaches both answers. Calls that do not (several agents
in one episode, a context that was cut) are timelines of their own. Ids are trained as they were
drawn; no text is encoded again here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engine.interface import Completion, TrainSample

TokenIds = tuple[int, ...]
Decode = Callable[[Sequence[int]], str]

LOOK_BACK = 64
"""Calls of an episode that a new prompt is compared with: bounds the work of an agent that runs
away."""


@dataclass(slots=True)
class Timeline:
    """One sequence of an episode."""

    prompt: TokenIds
    """What the first call read."""
    tokens: list[int] = field(default_factory=list)
    """All that came after: answers, and what stood between them."""
    logprobs: list[float] = field(default_factory=list)
    """Of each of `tokens`; 0.0 where it was not sampled."""
    mask: list[bool] = field(default_factory=list)
    """Which of `tokens` were sampled."""
    calls: int = 0

    def add(self, call: Completion) -> None:
        """Go on with a call whose prompt begins with this whole timeline."""
        between = call.prompt_tokens[len(self.prompt) + len(self.tokens) :]
        self.tokens += [*between, *call.tokens]
        self.logprobs += [0.0] * len(between) + list(call.logprobs)
        self.mask += [False] * len(between) + [True] * len(call.tokens)
        self.calls += 1

    def sample(self, task_id: str, episode: str, reward: float) -> TrainSample:
        """This timeline with its episode's reward."""
        return TrainSample(
            task_id=task_id,
            prompt_tokens=self.prompt,
            tokens=tuple(self.tokens),
            logprobs=tuple(self.logprobs),
            reward=reward,
            mask=None if all(self.mask) else tuple(self.mask),
            episode=episode,
        )


def merge_calls(calls: Sequence[Completion]) -> list[Timeline]:
    """Timelines of an episode's calls, in the order of their first calls.

    Args:
        calls: In the order of their ends; those without a sampled token are left out.
    """
    timelines: list[Timeline] = []
    ends: dict[TokenIds, list[Timeline]] = {}
    lengths: set[int] = set()
    for call in calls:
        if not call.tokens:
            continue
        timeline = _pop_longest(ends, lengths, call.prompt_tokens)
        if timeline is None:
            timeline = Timeline(call.prompt_tokens)
            timelines.append(timeline)
        timeline.add(call)
        whole = call.prompt_tokens + call.tokens
        ends.setdefault(whole, []).append(timeline)
        lengths.add(len(whole))
    return timelines


def _pop_longest(
    ends: dict[TokenIds, list[Timeline]], lengths: set[int], prompt: TokenIds
) -> Timeline | None:
    """Take the longest timeline that `prompt` begins with."""
    for length in sorted(lengths, reverse=True):
        waiting = ends.get(prompt[:length]) if length <= len(prompt) else None
        if waiting:
            return waiting.pop()
    return None


@dataclass(frozen=True, slots=True)
class RepairedPrompt:
    """A prompt whose earlier answers are the ids that were drawn."""

    tokens: TokenIds
    drifts: int
    """Answers whose ids came back otherwise than they were drawn."""


def repair_prompt(prompt: TokenIds, calls: Sequence[Completion], decode: Decode) -> RepairedPrompt:
    """Put the sampled ids of earlier answers back into a rendered prompt.

    A client sends text; encoded again it can give other ids than were drawn (a word drawn in two
    pieces, a blank that was stripped). The policy would then go on from a context it never made,
    and the calls could not be merged.

    Args:
        prompt: As rendered from the client's messages.
        calls: The episode's earlier calls, oldest first.
        decode: Ids to text; tags are nothing.
    """
    done: TokenIds = ()
    rest = prompt
    drifts = 0
    while True:
        best: tuple[int, bool, TokenIds, TokenIds] | None = None
        for call in calls[-LOOK_BACK:]:
            found = _match_call(done, rest, call, decode)
            if found is not None and (best is None or found[:2] > best[:2]):
                best = found
        if best is None:
            return RepairedPrompt(done + rest, drifts)
        drifts += not best[1]
        done, rest = best[2:]


def _match_call(
    done: TokenIds, rest: TokenIds, call: Completion, decode: Decode
) -> tuple[int, bool, TokenIds, TokenIds] | None:
    """Whether `done` and then `rest` go through `call`.

    Returns:
        Length of what the call read, whether its answer came back as it was drawn, all up to the
        end of the answer as it was drawn, and what follows it.
    """
    read, drawn = call.prompt_tokens, call.tokens
    if not drawn or len(read) < len(done) or read[: len(done)] != done:
        return None
    step = len(read) - len(done)
    if rest[:step] != read[len(done) :]:
        return None
    region = rest[step:]
    if region[: len(drawn)] == drawn:
        return len(read), True, read + drawn, region[len(drawn) :]
    closed = call.finish_reason != "length" and not decode(drawn[-1:])
    end = _answer_end(region, drawn, decode, closed=closed)
    return None if end is None else (len(read), False, read + drawn, region[end:])


def _answer_end(region: TokenIds, drawn: TokenIds, decode: Decode, *, closed: bool) -> int | None:
    """How many ids of `region` say what `drawn` says, blanks apart; None when it begins otherwise.

    An answer closed by its end tag is looked for up to that tag, one that was cut off by its text.
    """
    wanted = _without_blanks(decode(drawn))
    if not wanted:
        return None
    if closed:
        end = region.index(drawn[-1]) + 1 if drawn[-1] in region else 0
        return end if _without_blanks(decode(region[:end])) == wanted else None
    low, high = 1, len(region)
    while low < high:
        middle = (low + high) // 2
        if len(_without_blanks(decode(region[:middle]))) < len(wanted):
            low = middle + 1
        else:
            high = middle
    return low if _without_blanks(decode(region[:low])) == wanted else None


def _without_blanks(text: str) -> str:
    return "".join(text.split())
