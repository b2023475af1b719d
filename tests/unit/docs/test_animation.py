"""`docs.animation`: several screenshots as one animated SVG."""

import re
from xml.etree import ElementTree

import pytest

from docs.animation import animate


def frame(text: str, colour: str, width: int = 80) -> str:
    return (
        f'<svg viewBox="0 0 {width} 24" xmlns="http://www.w3.org/2000/svg">\n'
        f"<style>\n.t-matrix {{ font-size: 20px }}\n.t-r1 {{ fill: {colour} }}\n</style>\n"
        '<defs><clipPath id="t-clip-terminal"/></defs>'
        f'<g class="t-matrix"><text class="t-r1">{text}</text></g></svg>'
    )


def test_each_frame_is_shown_for_its_share_of_the_cycle() -> None:
    svg = animate([(frame("one", "#111"), 1.0), (frame("two", "#222"), 3.0)])
    ElementTree.fromstring(svg)
    assert "animation:4s" in svg
    assert "0.00%{visibility:visible}25.00%{visibility:hidden}" in svg
    assert "25.00%{visibility:visible}100.00%{visibility:visible}" in svg


def test_frames_share_equal_colours_and_keep_different_ones_apart() -> None:
    svg = animate(
        [(frame(text, fill), 1.0) for text, fill in (("a", "#1"), ("b", "#2"), ("c", "#1"))]
    )
    shown = {text: name for name, text in re.findall(r'class="(c\d)">(\w)<', svg)}
    assert shown == {"a": "c0", "b": "c1", "c": "c0"}


def test_frames_of_different_sizes_and_no_frames_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in size"):
        animate([(frame("a", "#1"), 1.0), (frame("b", "#1", width=160), 1.0)])
    with pytest.raises(ValueError, match="at least one frame"):
        animate([])
