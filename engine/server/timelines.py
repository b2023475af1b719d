"""Merging of an episode's calls into timelines, so that each sampled token is trained once.

A call whose prompt starts with everything an earlier call read and sampled continues that call's
timeline: one sequence through the network trains both answers. Other calls (several agents in one
episode, a truncated context) form timelines of their own. Tokens are trained exactly as sampled; no
text is re-encoded here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engine.interface import Completion, TrainSample

TokenIds = tuple[int, ...]
Decode = Callable[[Sequence[int]], str]

LOOK_BACK = 64
"""Number of an episode's calls that a new prompt is compared with; bounds the work for an agent in
an endless loop."""


@dataclass(slots=True)
class Timeline:
    """One training sequence of an episode."""

    prompt: TokenIds
    """Prompt of the first call."""
    tokens: list[int] = field(default_factory=list)
    """All later tokens: answers and the context between them."""
    logprobs: list[float] = field(default_factory=list)
    """One for each of `tokens`; 0.0 where the token was not sampled."""
    mask: list[bool] = field(default_factory=list)
    """True for each of `tokens` that was sampled."""
    calls: int = 0

    def add(self, call: Completion) -> None:
        """Append a call whose prompt starts with this whole timeline."""
        between = call.prompt_tokens[len(self.prompt) + len(self.tokens) :]
        self.tokens += [*between, *call.tokens]
        self.logprobs += [0.0] * len(between) + list(call.logprobs)
        self.mask += [False] * len(between) + [True] * len(call.tokens)
        self.calls += 1

    def sample(self, task_id: str, episode: str, reward: float) -> TrainSample:
        """Return this timeline as a training sample with its episode's reward."""
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
    """Return the timelines of an episode's calls, in the order of their first calls.

    Args:
        calls: In the order of their ends; calls without a sampled token are skipped.
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
    """Remove and return the longest timeline that `prompt` starts with."""
    for length in sorted(lengths, reverse=True):
        candidates = ends.get(prompt[:length]) if length <= len(prompt) else None
        if candidates:
            return candidates.pop()
    return None


@dataclass(frozen=True, slots=True)
class RepairedPrompt:
    """A prompt in which earlier answers have their sampled token ids again."""

    tokens: TokenIds
    drifts: int
    """Number of answers that had come back as other ids than were sampled."""


def repair_prompt(prompt: TokenIds, calls: Sequence[Completion], decode: Decode) -> RepairedPrompt:
    """Put the sampled ids of earlier answers back into a rendered prompt.

    A client sends text; re-encoding can yield other ids than were sampled (a word sampled in two
    pieces, a stripped blank). The policy would then continue from a context it never produced, and
    the calls could not be merged.

    Args:
        prompt: As rendered from the client's messages.
        calls: The episode's earlier calls, oldest first.
        decode: Ids to text; control tokens decode to nothing.
    """
    done: TokenIds = ()
    rest = prompt
    drifts = 0
    while True:
        best: tuple[int, bool, TokenIds, TokenIds] | None = None
        for call in calls[-LOOK_BACK:]:
            match = _match_call(done, rest, call, decode)
            if match is not None and (best is None or match[:2] > best[:2]):
                best = match
        if best is None:
            return RepairedPrompt(done + rest, drifts)
        drifts += not best[1]
        done, rest = best[2:]


def _match_call(
    done: TokenIds, rest: TokenIds, call: Completion, decode: Decode
) -> tuple[int, bool, TokenIds, TokenIds] | None:
    """Match `call` against the prompt `done + rest`.

    Returns:
        Length of the call's prompt, whether its answer came back unchanged, all ids up to the end
        of the answer as sampled, and the rest of the prompt; None without a match.
    """
    read, sampled = call.prompt_tokens, call.tokens
    if not sampled or len(read) < len(done) or read[: len(done)] != done:
        return None
    step = len(read) - len(done)
    if rest[:step] != read[len(done) :]:
        return None
    region = rest[step:]
    if region[: len(sampled)] == sampled:
        return len(read), True, read + sampled, region[len(sampled) :]
    closed = call.finish_reason != "length" and not decode(sampled[-1:])
    end = _answer_end(region, sampled, decode, closed=closed)
    return None if end is None else (len(read), False, read + sampled, region[end:])


def _answer_end(region: TokenIds, sampled: TokenIds, decode: Decode, *, closed: bool) -> int | None:
    """Return how many ids of `region` have the text of `sampled`, blanks ignored; None when its
    text differs.

    An answer that was closed by its end token is searched up to that token, a truncated one by its
    text.
    """
    expected = _without_blanks(decode(sampled))
    if not expected:
        return None
    if closed:
        end = region.index(sampled[-1]) + 1 if sampled[-1] in region else 0
        return end if _without_blanks(decode(region[:end])) == expected else None
    low, high = 1, len(region)
    while low < high:
        middle = (low + high) // 2
        if len(_without_blanks(decode(region[:middle]))) < len(expected):
            low = middle + 1
        else:
            high = middle
    return low if _without_blanks(decode(region[:low])) == expected else None


def _without_blanks(text: str) -> str:
    return "".join(text.split())
