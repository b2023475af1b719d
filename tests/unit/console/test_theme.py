"""The colours of the themes: readable, and different for two meanings side by side."""

import colorsys
from itertools import pairwise

import pytest

from console.text.theme import DEFAULTS, THEMES

COLOURS = [name for name, theme in THEMES.items() if not theme.ansi]


QUIET = {"faint", "band", "border", "pill-text"}
"""Lines, grounds and text on a coloured ground: not read on the background."""


def channels(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    linear = [
        channel / 12.92 if channel <= 0.03928 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in channels(colour)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def hues_apart(one: str, other: str) -> float:
    """Degrees between two hues, 0 to 180."""
    first, second = (360 * colorsys.rgb_to_hls(*channels(colour))[0] for colour in (one, other))
    return min(abs(first - second), 360 - abs(first - second))


@pytest.mark.parametrize("name", COLOURS)
def test_text_is_readable_on_background_and_surface(name: str) -> None:
    theme = THEMES[name]
    colours = {key: value for key, value in theme.variables.items() if key not in QUIET}
    for key in ("foreground", "primary", "accent", "warning", "error"):
        colours[key] = str(getattr(theme, key))
    low = {
        key: ground
        for key, colour in colours.items()
        for ground in (theme.background, theme.surface)
        if contrast(colour, str(ground)) < 4.5
    }
    assert not low


@pytest.mark.parametrize("name", COLOURS)
def test_lines_and_pills_have_enough_contrast(name: str) -> None:
    theme = THEMES[name]
    assert contrast(theme.variables["faint"], str(theme.background)) >= 3
    pills = [key for key in theme.variables if key.startswith(("engine-", "part-"))]
    text = theme.variables["pill-text"]
    assert not [key for key in pills if contrast(theme.variables[key], text) < 4.5]


@pytest.mark.parametrize("name", COLOURS)
def test_claiming_and_rating_have_distinct_colours(name: str) -> None:
    variables = THEMES[name].variables
    assert hues_apart(variables["claiming"], variables["winner"]) >= 60


@pytest.mark.parametrize("name", COLOURS)
def test_adjacent_parts_of_a_bar_have_distinct_colours(name: str) -> None:
    parts = [THEMES[name].variables[f"part-{at}"] for at in range(1, 7)]
    assert all(hues_apart(one, two) >= 30 for one, two in pairwise(parts))


def test_the_ansi_theme_uses_distinct_colours() -> None:
    variables = THEMES["ansi"].variables
    assert variables["claiming"] != variables["winner"]
    parts = [variables[f"part-{at}"] for at in range(1, 7)]
    assert len(set(parts)) == len(parts)


def test_every_theme_defines_every_semantic_variable() -> None:
    wanted = set(THEMES["dark"].variables) - {"border"} | set(DEFAULTS)
    assert not [name for name, theme in THEMES.items() if wanted - set(theme.variables)]
