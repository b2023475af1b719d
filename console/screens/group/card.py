"""A candidate as a card: its text, its reward and the reasons, wrapped for a width."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache

from msgspec import structs

from ajet_swarm.common.text import one_line, plural
from console.screens.group.model import WholeAnswer
from console.session.group_facts import advantages, best_of, known_rewards, rated_best
from console.text.causes import UNCONFIRMED, candidate_words, cause_words, held_down
from console.text.diff import SHARED, word_diff
from console.text.format import duration, number, places_of
from console.text.lines import EMPTY, Line, fit, line_text, line_width
from console.text.markdown import markdown_lines
from console.text.tool_calls import calls_text, tool_calls
from console.text.wrap import wrapped_lines
from console.views.group import CUT
from core.events import Part
from core.state import Candidate, Group

_REASONING_CAP = 200_000


@dataclass(frozen=True, slots=True)
class Card:
    """Content of one card; equal cards are painted equally."""

    candidate: Candidate = field(hash=False)
    """A copy of its state, with the whole texts where they are known."""
    label: str
    """Text of its title: the digit that votes for it."""
    reward: float | None = None
    cause: str = ""
    """What reduces the reward; empty for nothing."""
    advantage: float | None = None
    places: int = 2
    """Decimals that tell the rewards of its group apart."""

    winner: bool = False
    returned: bool = False
    rated: bool = False
    rank: str = ""
    """Rank or score that the operator has typed for it; empty for none."""
    blind: bool = False
    unfolded: bool = False
    raw: bool = False
    compact: bool = False
    """Figures and parts take one line, the answer takes the rest."""
    gone: str = ""
    """Text in place of an answer that will never come."""
    base: bool = False
    """Whether the others are compared with it."""
    against: str | None = None
    """Text that its own text is compared with; None without a comparison."""
    against_calls: str = ""
    """Tool calls that its own are compared with, as JSON over several lines."""
    same: str = ""
    """Label of the first answer with exactly the same text; empty for none before it."""
    beside: tuple[str, ...] = ()
    """Texts of all answers; lines that all of them have are dimmed. Empty: none is."""


def cards(group: Group, whole: dict[int, WholeAnswer] | None = None) -> list[Card]:
    """Return the cards of a group, in the order of its candidates."""
    rewards, gains = known_rewards(group), advantages(group)
    best, rated = best_of(group), rated_best(group)
    gone, places = _gone(group), places_of(rewards)
    result = []
    for index, candidate in enumerate(group.candidates):
        full = whole.get(index) if whole else None
        texts = {**asdict(full), "cut": False} if full is not None else {}
        result.append(
            Card(
                structs.replace(candidate, **texts),
                label=str(index + 1),
                reward=rewards[index] if index < len(rewards) else None,
                cause=_cause(group, candidate),
                advantage=gains[index] if index < len(gains) else None,
                places=places,
                winner=index == best,
                returned=index == group.returned,
                rated=index == rated,
                gone=gone,
            )
        )
    return mark_same(result)


def mark_same(cards: Iterable[Card]) -> list[Card]:
    """Return the cards, each repeated answer marked with the label of the first."""
    first: dict[tuple[str, str], str] = {}
    marked = []
    for card in cards:
        content = (card.candidate.text.strip(), card.candidate.tool_calls)
        known = any(content) and not card.candidate.cut
        same = first.get(content, "") if known else ""
        if known:
            first.setdefault(content, card.label)
        marked.append(card if card.same == same else replace(card, same=same))
    return marked


def compared(cards: Sequence[Card], base: int) -> list[Card]:
    """Return the cards with the text of the one at `base` to compare them with."""
    first = next((card for card in cards if card.candidate.index == base), None)
    if first is None:
        return list(cards)
    calls = calls_text(first.candidate.tool_calls)
    return [
        replace(card, base=True)
        if card is first
        else replace(card, against=first.candidate.text, against_calls=calls)
        for card in cards
    ]


def _cause(group: Group, candidate: Candidate) -> str:
    """Return the cause of its reward, if something reduces it or a vote replaces it."""
    voted = group.rating is not None and bool(group.rating.rewards) and not group.source
    if group.source == "human" or voted:
        return "human rating"
    return held_down(candidate.parts, candidate.auto_reward)


def _gone(group: Group) -> str:
    if group.open:
        return ""
    cause = f" ({one_line(cause_words(group), 200)})" if group.cause else ""
    return f"no answer: {group.phase.lower()}{cause}"


def figures(candidate: Candidate) -> str:
    """Return `stop · 42 tok · 1.3s · 3f9a12cd`."""
    pieces = (
        one_line(candidate.finish_reason, 12),
        f"{candidate.tokens} tok" if candidate.tokens else "",
        duration(candidate.seconds) if candidate.seconds else "",
        f"try {candidate.attempt}" if candidate.attempt > 1 else "",
        one_line(candidate.episode_uuid, 40)[:8],
    )
    return " · ".join(filter(None, pieces))


# --- lines -----------------------------------------------------------------------------------


def head(card: Card, width: int, selected: bool, place: str = "") -> Line:
    """Return the title of a card in exactly `width` cells: number, typed rank, its place among all
    if that is to be said, the three marks."""
    number_tone = "bold reverse" if selected else "bold"
    pieces: list[tuple[str, str]] = [(f" {card.label} ", number_tone), (" ", "")]
    if not card.blind and card.label != str(card.candidate.index + 1):
        pieces.append((f"#{card.candidate.index + 1} ", "$muted"))
    if card.rank:
        pieces.append((f"{card.rank} ", "bold $accent"))
    if place:
        pieces = [*(pieces if len(pieces) > 2 else pieces[:1]), (f"{place}  ", "$muted")]
    forms = ((*pieces, *marks) for marks in (_marks(card, True), _marks(card, False), ()))
    line: Line = next((form for form in forms if line_width(form) <= width), tuple(pieces))
    rest = width - line_width(line)
    reward = "" if card.blind or card.reward is None else f"{number(card.reward, card.places)} "
    if len(reward) > rest:
        reward = ""
    return (*line, (" " * (rest - len(reward)), ""), (reward, "bold")) if rest > 0 else line


def in_border(line: Line) -> list[tuple[str, str]]:
    """Return the head of a card without the padding of its row."""
    pieces = [(text if text.strip() else " ", tone) for text, tone in line]
    while pieces and not pieces[-1][0].strip():
        pieces.pop()
    return [*pieces[:-1], (pieces[-1][0].rstrip(), pieces[-1][1])] if pieces else []


def _marks(card: Card, words: bool) -> list[tuple[str, str]]:
    shown = not card.blind
    marks = (
        (card.candidate.truncated, f"{CUT} prompt cut  ", f"{CUT} ", "$warning"),
        (card.same, f"= same as {card.same}  ", f"={card.same} ", "$accent"),
        (card.base, "≡ compared with  ", "≡ ", "$accent"),
        (card.winner and shown, "▲ winner  ", "▲ ", "$winner"),
        (card.returned and shown, "→ returned  ", "→ ", "$returned"),
        (card.rated and shown, "✓ rated best  ", "✓ ", "$reward-up"),
    )
    return [(long if words else short, tone) for holds, long, short, tone in marks if holds]


@lru_cache(maxsize=64)
def body(card: Card, width: int) -> tuple[Line, ...]:
    """Return the rest of a card, wrapped for `width` cells; cached, because each flush calls it."""
    inner = max(8, width - 2)
    lines: list[Line] = []
    if not card.blind:
        lines += _compact(card, inner) if card.compact else _facts(card, inner)
    lines += _content(card, inner)
    if not (card.blind or card.compact):
        lines += _reasons(card, inner)
    return tuple(((" ", ""), *line) if line else EMPTY for line in lines)


def _facts(card: Card, width: int) -> list[Line]:
    lines: list[Line] = []
    if card.reward is not None:
        pieces: list[tuple[str, str]] = [
            ("reward ", "$muted"),
            (number(card.reward, card.places), "bold"),
        ]
        if card.advantage is not None:
            tone = "$reward-up" if card.advantage > 0 else "$reward-down"
            pieces += [
                ("  advantage ", "$muted"),
                (_advantage(card), tone if card.advantage else "$muted"),
            ]
        beside: Line = (*pieces, (f"  {card.cause}", "$muted"))
        fits = bool(card.cause) and line_width(beside) <= width
        lines.append(beside if fits else tuple(pieces))
        if card.cause and not fits:
            lines += wrapped_lines(card.cause, width, "$muted")
    lines += wrapped_lines(figures(card.candidate), width, "$muted")
    if card.unfolded and card.candidate.episode_uuid:
        lines += wrapped_lines(f"episode {card.candidate.episode_uuid}", width, "$muted")
    if lines:
        lines.append(EMPTY)
    return lines


def _compact(card: Card, width: int) -> list[Line]:
    """Return `reward 0.90  ≈+1.62 · correct 1.00 × 0.7 · format 1.00 gate`, cut to one line.

    Open gates come last, because they matter least.
    """
    if card.reward is None and not card.candidate.parts:
        return []
    pieces = [f"reward {number(card.reward, card.places)}"]
    if card.cause:
        pieces[0] += f" ({card.cause})"
    if card.advantage is not None:
        pieces[0] += f"  advantage {_advantage(card)}"
    for part in sorted(card.candidate.parts, key=lambda part: part.gate and part.value >= 1):
        pieces.append(f"{one_line(part.name, 30)} {number(part.value)} {_how(part)}")
    return [((fit(" · ".join(pieces), width), "$muted"),)]


def _advantage(card: Card) -> str:
    return f"{'≈' if card.candidate.reward is None else ''}{card.advantage:+.{card.places}f}"


def _how(part: Part) -> str:
    return "gate" if part.gate else f"× {part.weight:g}"


def _content(card: Card, width: int) -> list[Line]:
    lines = _reasoning(card, width) if card.candidate.reasoning else []
    lines += _text(card, width)
    if card.candidate.tool_calls or (card.against_calls and card.against is not None):
        if card.candidate.text:
            lines.append(EMPTY)
        lines += _tool_calls(card, width)
    lines += _trouble(card, width)
    if not lines:
        waits = {"waiting": "no episode yet", "claimed": "generating…", "answered": "(empty)"}
        message = waits.get(card.candidate.phase, one_line(card.candidate.phase, 40))
        if card.gone and card.candidate.phase in ("waiting", "claimed"):
            message = card.gone
        lines += wrapped_lines(message, width, "italic $muted")
    if card.candidate.cut:
        lines.append((("… cut" if card.blind else "… cut; r reads the whole text", "$muted"),))
    return lines


def _text(card: Card, width: int) -> Sequence[Line]:
    if card.against is not None and (card.candidate.text or card.against):
        return word_diff(card.against, card.candidate.text, width)
    if not card.candidate.text:
        return ()
    if card.raw:
        return wrapped_lines(card.candidate.text, width)
    lines = _markdown(card.candidate.text, width)
    shared = shared_lines(card.beside, width)
    return [
        tuple((text, SHARED) for text, _ in line) if line_text(line).strip() in shared else line
        for line in lines
    ]


@lru_cache(maxsize=32)
def _markdown(text: str, width: int) -> Sequence[Line]:
    return markdown_lines(text, width)


@lru_cache(maxsize=16)
def shared_lines(texts: Sequence[str], width: int) -> frozenset[str]:
    """Return the lines that all of several different texts have, as painted in `width` cells."""
    if len(set(texts)) < 2:
        return frozenset()
    painted = ({line_text(line).strip() for line in _markdown(text, width)} for text in texts)
    return frozenset(set.intersection(*painted) - {""})


def _trouble(card: Card, width: int) -> list[Line]:
    phase, known = card.candidate.phase, card.candidate
    error = candidate_words(known.error, known.failure, known.failure_text)
    if phase == "unknown":
        why = f": {error}" if error else ""
        message, tone = f"≈ {UNCONFIRMED}{why}", "bold $warning"
    elif error:
        tone = "$reward-down" if phase in ("failed", "expired") else "$muted"
        message = f"{phase}: {error}"
    else:
        return []
    return wrapped_lines(message, width, tone, 2_000)


def _reasoning(card: Card, width: int) -> list[Line]:
    lines = wrapped_lines(card.candidate.reasoning, width, "$muted", _REASONING_CAP)
    if card.unfolded or card.raw:
        return [(("▾ reasoning", "$muted"),), *lines, EMPTY]
    return [((f"▸ reasoning, {plural(len(lines), 'line')}  (z unfolds)", "$muted"),)]


def _tool_calls(card: Card, width: int) -> Sequence[Line]:
    if card.against is not None:
        return word_diff(card.against_calls, calls_text(card.candidate.tool_calls), width)
    if card.raw:
        return wrapped_lines(card.candidate.tool_calls, width)
    lines: list[Line] = []
    for name, arguments in tool_calls(card.candidate.tool_calls):
        title = f"⚙ {one_line(name, 60)}" if name else "⚙ tool call"
        lines.append(((fit(title, min(len(title), width)), "bold $accent"),))
        lines += wrapped_lines(arguments, width, indent="  ")
    return lines


def _reasons(card: Card, width: int) -> list[Line]:
    if not card.candidate.parts:
        return []
    lines: list[Line] = [EMPTY, (("reward parts", "$heading"),)]
    widest = min(max(len(part.name) for part in card.candidate.parts), max(6, width // 2))
    for part in card.candidate.parts:
        name = fit(one_line(part.name, 60), widest)
        tone = "$reward-down" if part.gate and not part.value else "bold"
        lines.append(((f"{name}  ", ""), (number(part.value), tone), (f" {_how(part)}", "$muted")))
        if part.reason:
            lines += wrapped_lines(part.reason, width, "$muted", 1_000, indent="  ")
    return lines
