"""The ratios of benchmarks: read from their output, compared, drawn."""

from xml.etree import ElementTree

from bench.versions import Point, Ratio, page, plot, ratios_of, worse

OUTPUT = """\
| a table |
PASS update_vs_naive 0.59 x <= 1 x
FAIL continuous_batching 3.40 x >= 3.5 x
PASS engine_rss 184.00 MB <= 260 MB
INFO other 2.00 x
"""


def point(commit: str, update: float, batching: float, machine: str = "m") -> Point:
    ratios = {
        "engine.update": Ratio(update, update, update, "less"),
        "engine.batching": Ratio(batching, batching, batching, "more"),
    }
    return Point(commit, "2026-11-24", machine, 5, ratios)


def test_only_ratios_with_a_bar_are_read() -> None:
    assert ratios_of(OUTPUT) == {
        "update_vs_naive": (0.59, "less"),
        "continuous_batching": (3.4, "more"),
    }


def test_a_ratio_a_quarter_worse_on_the_same_kind_of_machine_is_named() -> None:
    before = [point("a", 1.0, 4.0), point("b", 0.5, 4.0), point("c", 0.1, 9.0, "other")]
    assert worse(point("d", 0.62, 3.3), before) == []
    assert worse(point("d", 0.63, 4.0), before) == ["engine.update: 0.63 x, 0.5 x at b"]
    assert worse(point("d", 0.5, 3.1), before) == ["engine.batching: 3.1 x, 4 x at b"]
    assert worse(point("d", 9.0, 1.0), []) == []


def test_the_page_and_the_plot_have_every_version() -> None:
    points = [point("a", 1.0, 4.0), point("b", 0.5, 5.0)]
    text = page(points)
    assert "| engine.update | less | 1 (1 to 1) | 0.5 (0.5 to 0.5) |" in text
    drawn = ElementTree.fromstring(plot(points))
    lines = [one.get("points", "") for one in drawn.iter() if one.tag.endswith("polyline")]
    heights = [[float(dot.split(",")[1]) for dot in line.split()] for line in lines]
    assert heights[0][1] < heights[0][0]  # half of the cost is drawn higher
