"""Learning curves as SVG, without a plotting library."""

from collections.abc import Mapping, Sequence
from statistics import median

PANELS = {
    "enthusiasm": "enthusiasm (reward)",
    "arithmetic": "arithmetic (share right)",
    "shortest": "shortest of four (characters)",
    "random": "random reward (enthusiasm)",
}
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 300, 210, 38, 30, 12, 30
_STYLE = (
    "text{font:11px sans-serif;fill:#444}.t{font-weight:bold}.g{stroke:#ccc;stroke-width:.5}"
    ".s{fill:none;stroke:#7aa6d8;stroke-width:1}.m{fill:none;stroke:#1b4f8f;stroke-width:2.2}"
)

Curve = Mapping[int, float]


def draw(curves: Mapping[str, Sequence[Curve]]) -> str:
    """One panel a reward: thin lines are seeds, the thick one their median.

    Args:
        curves: By the names of `PANELS`; each curve maps updates done to the measure.
    """
    parts = [_panel(i, PANELS[name], seeds) for i, (name, seeds) in enumerate(curves.items())]
    width = _WIDTH * len(parts)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT}" '
        f'width="{width}" height="{_HEIGHT}"><style>{_STYLE}</style>'
        f'<rect width="{width}" height="{_HEIGHT}" fill="#fff"/>'
    )
    return head + "".join(parts) + "</svg>\n"


def _panel(place: int, title: str, seeds: Sequence[Curve]) -> str:
    steps = sorted(seeds[0])
    top = _ceiling(max(value for seed in seeds for value in seed.values()))
    shift = place * _WIDTH

    def point(step: int, value: float) -> str:
        x = shift + _LEFT + (_WIDTH - _LEFT - _RIGHT) * step / steps[-1]
        y = _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1.0 - value / top)
        return f"{x:.1f},{y:.1f}"

    def line(kind: str, values: Sequence[float]) -> str:
        points = " ".join(point(step, value) for step, value in zip(steps, values, strict=True))
        return f'<polyline class="{kind}" points="{points}"/>'

    elements = [f'<text class="t" x="{shift + _LEFT}" y="18">{title}</text>']
    for i in range(5):
        x, y = point(0, top * i / 4).split(",")
        elements.append(f'<path class="g" d="M{x} {y}H{shift + _WIDTH - _RIGHT}"/>')
        label = f"{top * i / 4:.2f}" if top <= 2 else f"{top * i / 4:.0f}"
        elements.append(
            f'<text x="{float(x) - 5}" y="{float(y) + 4}" text-anchor="end">{label}</text>'
        )
    for step in range(0, steps[-1] + 1, 10):
        x, _ = point(step, 0.0).split(",")
        elements.append(f'<text x="{x}" y="{_HEIGHT - 14}" text-anchor="middle">{step}</text>')
    elements.append(
        f'<text x="{shift + _WIDTH - _RIGHT}" y="{_HEIGHT - 2}" text-anchor="end">updates</text>'
    )
    elements += [line("s", [seed[step] for step in steps]) for seed in seeds]
    elements.append(line("m", [median(seed[step] for seed in seeds) for step in steps]))
    return "".join(elements)


def _ceiling(most: float) -> float:
    """Return the top of a scale: a round number above `most`."""
    for top in (0.2, 0.4, 0.6, 0.8, 1.0, 20, 40, 60, 80, 100, 200):
        if most <= top:
            return float(top)
    return most
