"""One animated SVG made of several terminal screenshots of the same size, without scripts.

Each screenshot becomes a group that is visible for its share of a CSS animation, which also runs in
an `<img>`.
"""

import re
from collections.abc import Sequence

_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_COLOUR = re.compile(r"\.t-(r\d+) (\{[^}]*\})")


def animate(frames: Sequence[tuple[str, float]]) -> str:
    """Return one SVG that shows each frame for its seconds, in a loop.

    Args:
        frames: Screenshots as returned by `docs.pictures.lean`, each with its duration in seconds.

    Raises:
        ValueError: there is no frame, or the frames differ in size.
    """
    if not frames:
        raise ValueError("an animation needs at least one frame")
    heads = {svg[: svg.index("<style>")] for svg, _ in frames}
    if len(heads) > 1:
        raise ValueError("the frames differ in size")
    colours: dict[str, str] = {}
    total = sum(seconds for _, seconds in frames)
    groups, rules, start = [], [], 0.0
    for number, (svg, seconds) in enumerate(frames):
        (style,) = _STYLE.findall(svg)
        names = {
            old: colours.setdefault(rule, f"c{len(colours)}")
            for old, rule in _COLOUR.findall(style)
        }
        body = svg[svg.index("</defs>") + len("</defs>") : svg.rindex("</svg>")]
        for old, name in names.items():
            body = body.replace(f'class="t-{old}"', f'class="{name}"')
        groups.append(f'<g class="frame f{number}">{body}</g>')
        end = start + seconds
        hidden_before = "0%{visibility:hidden}" if start else ""
        rules.append(
            f"@keyframes f{number}{{{hidden_before}{100 * start / total:.2f}%{{visibility:visible}}"
            f"{100 * end / total:.2f}%{{visibility:{'hidden' if end < total else 'visible'}}}}}"
            f".f{number}{{animation-name:f{number}}}"
        )
        start = end
    shared = _COLOUR.sub("", style)
    shared += "".join(f".{name} {rule}\n" for rule, name in colours.items())
    shared += f".frame{{visibility:hidden;animation:{total:g}s step-end infinite}}\n"
    defs = frames[0][0][frames[0][0].index("<defs>") : frames[0][0].index("</defs>")] + "</defs>"
    (head,) = heads
    return f"{head}<style>{shared}{''.join(rules)}</style>{defs}{''.join(groups)}</svg>\n"
