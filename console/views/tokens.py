"""The token log of an episode as lines: id, loss mask, log-prob when sampled and now, text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from ajet_swarm.common.text import one_line, plural
from console.text.format import UNKNOWN, number
from console.text.lines import EMPTY, Line, fit, line_text
from console.text.wrap import wrapped
from core.control_payloads import EpisodeTokens, Token, TokenCall

WIDE = 110
"""Cells from which probabilities stand beside log-probs."""
_BAR = 12
_STILL = 0.005
"""A change of the log-prob below this counts as none."""
_NO_POLICY = (
    "The engine has no policy loaded: texts and current log-probs appear once it is started."
)


@dataclass(frozen=True, slots=True)
class Subject:
    """The candidate whose tokens are shown."""

    candidate: int
    of: int
    episode_uuid: str = ""
    query: str = ""


def title_line(subject: Subject, tokens: EpisodeTokens | None, width: int) -> Line:
    """Return the candidate, its reward, and the policy of the current log-probs."""
    pieces: list[tuple[str, str]] = [
        ("Tokens ", "bold $heading"),
        (f" candidate {subject.candidate + 1} of {subject.of} ", "bold"),
    ]
    if tokens is not None:
        reward = UNKNOWN if tokens.reward is None else number(tokens.reward)
        pieces += [(" reward ", "$muted"), (reward, "bold")]
        if tokens.state == "live":
            pieces.append(("  still running", "$warning"))
        if tokens.step is not None:
            pieces.append((f"  now: after {plural(tokens.step, 'update')}", "$muted"))
    episode = f"  episode {one_line(subject.episode_uuid, 40)[:8]}"
    if subject.episode_uuid and sum(len(text) for text, _ in pieces) + len(episode) <= width:
        pieces.append((episode, "$muted"))
    title_text = line_text(pieces)
    room = width - len(title_text) - 3
    if room > 12 and subject.query:
        pieces.append((f"  {fit('“' + one_line(subject.query, 200) + '”', room)}", "$muted"))
    return tuple(pieces)


def refusal_lines(what: str, todo: str, width: int) -> list[Line]:
    """Return why there are no tokens to show."""
    lines: list[Line] = [((text, "bold"),) for text in wrapped(what, width, 600)]
    return [*lines, *(((text, "$muted"),) for text in wrapped(todo, width, 600))]


def head_line(width: int) -> Line:
    """Return the titles of the columns."""
    wide = f"{'p then':>8}{'p now':>8}{'ratio':>8}  {'change':<{_BAR}}" if width >= WIDE else ""
    return (
        (f"{'#':>5}{'id':>7}{'loss':>6}{'sampled':>9}{'now':>9}{'diff':>8}{wide}  text", "$muted"),
    )


def token_lines(tokens: EpisodeTokens, width: int, unfolded: bool) -> list[Line]:
    """Return all calls below each other; context tokens are folded."""
    lines: list[Line] = []
    if any(token.text is None for call in tokens.calls for token in call.tokens):
        lines += [((text, "$warning"),) for text in wrapped(_NO_POLICY, width)]
    if not tokens.calls:
        lines.append((("This episode has made no call", "$muted"),))
    for place, call in enumerate(tokens.calls):
        lines += [EMPTY] if lines else []
        lines.append(_call_line(place, len(tokens.calls), call))
        lines += _rows(call, width, unfolded)
    return lines


def _call_line(place: int, count: int, call: TokenCall) -> Line:
    trained = [token for token in call.tokens if token.mask]
    pieces: list[tuple[str, str]] = [(" ", "")]
    if count > 1:
        pieces.append((f"call {place + 1} of {count}  ", "bold $heading"))
    pieces.append((f"{call.prompt_tokens} prompt, {len(trained)} trained", "bold"))
    if call.step is not None:
        pieces.append((f"  sampled after {plural(call.step, 'update')}", "$muted"))
    then = [token.logprob for token in trained if token.logprob is not None]
    now = [token.logprob_now for token in trained if token.logprob_now is not None]
    if then:
        mean = number(math.fsum(then) / len(then))
        after = f" → {number(math.fsum(now) / len(now))}" if now else ""
        pieces.append((f"  mean log-prob {mean}{after}", "$muted"))
    return tuple(pieces)


def _rows(call: TokenCall, width: int, unfolded: bool) -> list[Line]:
    lines: list[Line] = []
    numbered = list(enumerate(call.tokens, 1))
    for trained, run in groupby(numbered, key=lambda item: bool(item[1].mask)):
        rows = list(run)
        if trained or unfolded:
            lines += [_row(place, token, width) for place, token in rows]
        else:
            lines.append(_fold([token for _, token in rows], width))
    return lines


def _fold(tokens: Sequence[Token], width: int) -> Line:
    head = f"{'▸':>5} {plural(len(tokens), 'token')} read, not trained on  (z unfolds)  "
    text = "".join(token.text or "" for token in tokens)
    return ((head, "$muted"), (fit(one_line(text, 400), max(0, width - len(head))), "$faint"))


def _row(place: int, token: Token, width: int) -> Line:
    diff = None
    if token.logprob is not None and token.logprob_now is not None:
        diff = token.logprob_now - token.logprob
    tone = _tone(diff)
    pieces: list[tuple[str, str]] = [
        (f"{place:>5}", "$faint"),
        (f"{token.id:>7}", "$muted"),
        (f"{token.mask:>6}", "bold" if token.mask else "$muted"),
        (f"{_logprob(token.logprob):>9}", ""),
        (f"{_logprob(token.logprob_now):>9}", ""),
        (f"{UNKNOWN if diff is None else _signed(diff):>8}", tone),
    ]
    if width >= WIDE:
        pieces += _chances(token, diff, tone)
    used = sum(len(text) for text, _ in pieces) + 2
    text = UNKNOWN if token.text is None else repr(token.text)
    pieces += [("  ", ""), (fit(one_line(text, 200), max(0, width - used)), _text_tone(token))]
    return tuple(pieces)


def _text_tone(token: Token) -> str:
    return "bold" if token.mask and token.text is not None else "$muted"


def _chances(token: Token, diff: float | None, tone: str) -> list[tuple[str, str]]:
    """Return both probabilities, their ratio, and the change as a bar around its middle."""
    ratio = UNKNOWN if diff is None else f"{math.exp(min(diff, 20.0)):.2f}"
    text = f"{_chance(token.logprob):>8}{_chance(token.logprob_now):>8}{ratio:>8}  "
    half = _BAR // 2
    cells = 0 if diff is None else min(half, round(abs(diff) * half))
    if diff is not None and diff < 0:
        bar = " " * (half - cells) + "█" * cells + "│" + " " * (half - 1)
    else:
        bar = " " * half + "│" + "█" * min(cells, half - 1) + " " * max(0, half - 1 - cells)
    return [(text, "$muted"), (bar, tone)]


def _chance(logprob: float | None) -> str:
    return UNKNOWN if logprob is None else f"{100 * math.exp(min(0.0, logprob)):.1f}%"


def _logprob(value: float | None) -> str:
    return "0" if value is not None and abs(value) < 0.0005 else number(value, 3)


def _signed(diff: float) -> str:
    return "0" if abs(diff) < _STILL else f"{diff:+.2f}"


def _tone(diff: float | None) -> str:
    if diff is None or abs(diff) < _STILL:
        return "$faint"
    return "$reward-up" if diff > 0 else "$reward-down"
