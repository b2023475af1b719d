"""The token log of an episode as lines: id, loss mask, log-prob when sampled and now, text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from ajet_swarm.common.text import one_line, plural
from console.text.format import UNKNOWN, number
from console.text.lines import EMPTY, Line, fit, line_text
from console.text.wrap import wrapped
from console.ui.table import Cell, Column, Table
from core.control_payloads import EpisodeTokens, Token, TokenCall
from core.state import Group

WIDE = 110
"""Cells from which probabilities stand beside log-probs."""
_BAR = 12
_STILL = 0.005
"""A change of the log-prob below this counts as none."""
_NO_POLICY = (
    "The engine has no policy loaded: texts and current log-probs appear once it is started."
)


def title_line(
    group: Group | None, candidate: int, tokens: EpisodeTokens | None, width: int
) -> Line:
    """Return the candidate, its reward, and the policy of the current log-probs."""
    candidates = group.candidates if group is not None else []
    pieces: list[tuple[str, str]] = [
        ("Tokens ", "bold $heading"),
        (f" candidate {candidate + 1} of {len(candidates)} ", "bold"),
    ]
    if tokens is not None:
        reward = UNKNOWN if tokens.reward is None else number(tokens.reward)
        pieces += [(" reward ", "$muted"), (reward, "bold")]
        if tokens.state == "live":
            pieces.append(("  still running", "$warning"))
        if tokens.step is not None:
            pieces.append((f"  now: after {plural(tokens.step, 'update')}", "$muted"))
    uuid = candidates[candidate].episode_uuid if candidate < len(candidates) else ""
    episode = f"  episode {one_line(uuid, 40)[:8]}"
    if uuid and len(line_text(pieces)) + len(episode) <= width:
        pieces.append((episode, "$muted"))
    room = width - len(line_text(pieces)) - 3
    if room > 12 and group is not None and group.query:
        pieces.append((f"  {fit('“' + one_line(group.query, 200) + '”', room)}", "$muted"))
    return tuple(pieces)


def refusal_lines(what: str, todo: str, width: int) -> list[Line]:
    """Return why there are no tokens to show."""
    lines: list[Line] = [((text, "bold"),) for text in wrapped(what, width, 600)]
    return [*lines, *(((text, "$muted"),) for text in wrapped(todo, width, 600))]


@dataclass(frozen=True, slots=True)
class _TokenRow:
    """A token with its place in the call, from 1."""

    place: int
    token: Token

    @property
    def diff(self) -> float | None:
        """Change of its log-prob since it was sampled."""
        then, now = self.token.logprob, self.token.logprob_now
        return None if then is None or now is None else now - then

    @property
    def tone(self) -> str:
        """Colour of the change."""
        if self.diff is None or abs(self.diff) < _STILL:
            return "$faint"
        return "$reward-up" if self.diff > 0 else "$reward-down"


def _loss(row: _TokenRow) -> Cell:
    return str(row.token.mask), "bold" if row.token.mask else "$muted"


def _logprob(value: float | None) -> str:
    return "0" if value is not None and abs(value) < 0.0005 else number(value, 3)


def _diff(row: _TokenRow) -> Cell:
    if row.diff is None:
        return UNKNOWN, row.tone
    return "0" if abs(row.diff) < _STILL else f"{row.diff:+.2f}", row.tone


def _chance(logprob: float | None) -> str:
    return UNKNOWN if logprob is None else f"{100 * math.exp(min(0.0, logprob)):.1f}%"


def _ratio(row: _TokenRow) -> str:
    return UNKNOWN if row.diff is None else f"{math.exp(min(row.diff, 20.0)):.2f}"


def _change(row: _TokenRow) -> Cell:
    """Return the change of the log-prob as a bar around its middle."""
    half, diff = _BAR // 2, row.diff or 0.0
    cells = min(half, round(abs(diff) * half))
    left = "█" * cells if diff < 0 else ""
    right = "█" * min(cells, half - 1) if diff >= 0 else ""
    return f"  {left:>{half}}│{right}", row.tone


def _text(row: _TokenRow) -> Cell:
    token = row.token
    text = UNKNOWN if token.text is None else one_line(repr(token.text), 200)
    return f"  {text}", "bold" if token.mask and token.text is not None else "$muted"


_TABLE: Table[_TokenRow] = Table(
    (
        Column("#", 5, lambda row: str(row.place), "$faint", right=True),
        Column("id", 7, lambda row: str(row.token.id), "$muted", right=True),
        Column("loss", 6, _loss, right=True),
        Column("sampled", 9, lambda row: _logprob(row.token.logprob), right=True),
        Column("now", 9, lambda row: _logprob(row.token.logprob_now), right=True),
        Column("diff", 8, _diff, right=True),
        Column("p then", 8, lambda row: _chance(row.token.logprob), "$muted", right=True),
        Column("p now", 8, lambda row: _chance(row.token.logprob_now), "$muted", right=True),
        Column("ratio", 8, _ratio, "$muted", right=True),
        Column("  change", _BAR + 2, _change),
        Column("  text", 6, _text, most=999),
    ),
    gap="",
)


def _without(width: int) -> tuple[str, ...]:
    return () if width >= WIDE else ("p then", "p now", "ratio", "  change")


def head_line(width: int) -> Line:
    """Return the titles of the columns."""
    return _TABLE.head(width, _without(width))


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
            shown = [_TokenRow(place, token) for place, token in rows]
            lines += [_TABLE.row(row, width, _without(width)) for row in shown]
        else:
            lines.append(_fold([token for _, token in rows], width))
    return lines


def _fold(tokens: Sequence[Token], width: int) -> Line:
    head = f"{'▸':>5} {plural(len(tokens), 'token')} read, not trained on  (z unfolds)  "
    text = "".join(token.text or "" for token in tokens)
    return ((head, "$muted"), (fit(one_line(text, 400), max(0, width - len(head))), "$faint"))
