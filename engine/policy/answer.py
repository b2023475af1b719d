"""One answer while it is sampled: its text, stop texts, the pieces for its reader, tool calls."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ajet_swarm.common.errors import AjetError
from engine.interface import Completion, Prompt, SamplingParams, ToolCall


@dataclass(slots=True, eq=False)
class Request:
    """A request for one answer."""

    prompt: Prompt
    params: SamplingParams
    cancelled: bool = False
    """Set from any thread; the slot is freed at the next token step."""
    on_text: Callable[[str], None] | None = None
    """Receiver of the text in pieces; called by the policy, see `take_pieces` of a sampler."""


class AnswerFailedError(AjetError):
    """One request cannot be answered; the sampler has dropped it and goes on with the others.

    Attributes:
        request: The request.
    """

    def __init__(self, request: Request, what: str, todo: str = "") -> None:
        super().__init__(what, todo=todo)
        self.request = request


@dataclass(frozen=True, slots=True)
class SampledAnswer:
    """A request and its answer."""

    request: Request
    completion: Completion


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """Text of an answer without its tool calls, and the calls."""

    text: str
    calls: tuple[ToolCall, ...]


@dataclass(slots=True, eq=False)
class LiveAnswer:
    """An answer being sampled."""

    request: Request
    limit: int
    """Maximum number of tokens."""
    decode: Callable[[int], str]
    """Returns the new text that a token completes."""
    ends: frozenset[int]
    """Ids that end an answer."""
    markers: tuple[str, ...] = ()
    """Texts that start a tool call: the pieces stop before them and the blanks there."""
    openings: tuple[str, ...] = ()
    """Texts that make the answer a tool call when it begins with them."""
    silent: bool = False
    """The answer is a tool call: it has no pieces."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: str = ""
    finish: str = ""
    stopped_by: str | None = None
    _emitted: int = 0
    """Characters of the text already passed on as pieces."""
    _held: list[str] = field(init=False)
    """Stop texts and markers, sorted."""

    def __post_init__(self) -> None:
        self._held = sorted((*self.request.params.stop, *self.markers))

    def append(self, token: int, logprob: float) -> str:
        """Add a sampled token; return the new piece of text for the reader, if any."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if token in self.ends:
            self.finish = "stop"
            return ""
        before = len(self.text)
        self.text += self.decode(token)
        for stop in self.request.params.stop:
            at = self.text.find(stop, max(0, before - len(stop) + 1)) if stop else -1
            if at >= 0:
                self.text = self.text[:at]
                self.finish, self.stopped_by = "stop", stop
        if not self.finish and len(self.tokens) >= self.limit:
            self.finish = "length"
        if self.request.on_text is None or self.finish or self.silent:
            return ""
        return self._piece()

    def completed(self, step: int, parsed: ParsedAnswer | None) -> tuple[Completion, str]:
        """Return the answer, and the last piece of its text.

        Args:
            step: Global step of the weights.
            parsed: The answer's tool calls and remaining text; None when it calls no tool.
        """
        text, finish = self.text, self.finish
        calls: tuple[ToolCall, ...] = ()
        if parsed is not None:
            text, calls, finish = parsed.text, parsed.calls, "tool_calls"
        prompt = self.request.prompt
        completion = Completion(
            text=text,
            prompt_tokens=prompt.tokens,
            tokens=tuple(self.tokens),
            logprobs=tuple(self.logprobs),
            finish_reason=finish,
            truncated=prompt.truncated,
            tool_calls=calls,
            step=step,
            stop_reason=None if calls else self.stopped_by,
        )
        last = text[self._emitted :] if self.request.on_text is not None else ""
        return completion, last

    def _piece(self) -> str:
        text = self.text
        if self.openings and not self._emitted:
            head = text.lstrip()
            self.silent = head.startswith(self.openings)
            if self.silent or any(opening.startswith(head) for opening in self.openings):
                return ""
        for marker in self.markers:
            at = text.find(marker, self._emitted)
            text = text[:at] if at >= 0 else text
        whole = len(text) < len(self.text)
        until = len(text) if whole else len(text) - held_length(text, self._held, self._emitted)
        if self.markers or self.openings:
            until = len(text[:until].rstrip())
        piece = text[self._emitted : until]
        self._emitted = max(self._emitted, until)
        return piece


def held_length(text: str, stops: Sequence[str], emitted: int = 0) -> int:
    """Return how many characters at the end of `text` may be the start of a stop text.

    Args:
        text: Text so far.
        stops: Sorted, so that all stop texts with a common prefix are adjacent.
        emitted: Characters already passed on; no stop text starts in them.
    """
    for at in range(emitted if stops else len(text), len(text)):
        tail = text[at:]
        after = bisect_right(stops, tail)
        if after < len(stops) and stops[after].startswith(tail):
            return len(tail)
    return 0
