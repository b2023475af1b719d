"""A learning curve as SVG, and a table."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from examples.stage import say

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 460, 260, 40, 34, 14, 34
_STYLE = (
    "text{font:11px sans-serif;fill:#444}.t{font-weight:bold}.g{stroke:#ccc;stroke-width:.5}"
    ".r{fill:none;stroke:#d9a05b;stroke-width:1.2}.m{fill:none;stroke:#1b4f8f;stroke-width:2.2}"
    ".p{fill:#1b4f8f}"
)
Curve = Mapping[int, float]


def svg(title: str, held_out: Curve, rewards: Curve) -> str:
    """Return an SVG: held-out measure (thick), mean reward of each update (thin), 0 to 1."""
    last = max([1, *held_out, *rewards])

    def at(step: int, value: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * step / last
        return x, TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - min(max(value, 0.0), 1.0))

    def line(kind: str, curve: Curve) -> str:
        points = " ".join("{:.1f},{:.1f}".format(*at(step, curve[step])) for step in sorted(curve))
        return f'<polyline class="{kind}" points="{points}"/>'

    elements = [f'<text class="t" x="{LEFT}" y="18">{escape(title)}</text>']
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = at(0, value)
        elements.append(f'<path class="g" d="M{x} {y}H{WIDTH - RIGHT}"/>')
        elements.append(f'<text x="{x - 6}" y="{y + 4}" text-anchor="end">{value:.2f}</text>')
    for step in sorted(held_out):
        x, y = at(step, held_out[step])
        elements.append(f'<circle class="p" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
        elements.append(f'<text x="{x:.1f}" y="{HEIGHT - 18}" text-anchor="middle">{step}</text>')
    foot = "updates; thick: held-out questions, thin: mean reward of an update"
    elements.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{foot}</text>')
    elements += [line("r", rewards), line("m", held_out)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}"><style>{_STYLE}</style>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>' + "".join(elements) + "</svg>\n"
    )


def update_line(number: int, reward: float, more: str) -> str:
    """Return the line of an update: its mean reward as a number and as a bar."""
    bar = "#" * round(20 * min(max(reward, 0.0), 1.0))
    return f"update {number:3}  mean reward {reward:5.2f} {bar:20}  {more}"


def table(title: str, columns: Iterable[object], rows: Mapping[str, Sequence[float]]) -> list[str]:
    """Return a Markdown table of figures; `rows` maps a name to the figures of its columns."""
    head = [title, *map(str, columns)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, figures in rows.items():
        lines.append(f"| {name} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |")
    return lines


def write(
    folder: Path, name: str, title: str, lines: Sequence[str], curve: Curve, rewards: Curve
) -> None:
    """Print a table; write it and a plot of the curve to `NAME.md` and `NAME.svg`."""
    say("\n" + "\n".join(lines) + "\n")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / f"{name}.svg").write_text(svg(title, curve, rewards), encoding="utf-8")
