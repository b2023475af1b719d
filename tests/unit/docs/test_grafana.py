"""The Grafana dashboard: each metric and label it names exists, and Grafana can load it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.proxy.front import BODIES, fronted

FILE = Path(__file__).parents[3] / "docs/grafana/ajet-console.json"
BOARD: dict[str, Any] = json.loads(FILE.read_text())
CHAT = "/v1/chat/completions"
FUNCTIONS = {
    "sum", "max", "by", "rate", "increase", "histogram_quantile", "or", "vector", "scalar",
    "label_values",
}  # fmt: skip
ADDED = {"instance", "job"}
"""Labels that Prometheus adds to each sample."""


def panels() -> list[dict[str, Any]]:
    return list(BOARD["panels"])


def expressions() -> Iterator[str]:
    """All queries of panels and variables."""
    for panel in panels():
        yield from (one["expr"] for one in panel.get("targets", ()))
    for one in BOARD["templating"]["list"]:
        if one["type"] == "query":
            yield one["query"]["query"]


def used(expression: str) -> tuple[set[str], set[str]]:
    """The metrics and the labels of a query."""
    values = re.match(r"label_values\((\S+), (\w+)\)$", expression)
    if values is not None:
        return {values[1]}, {values[2]}
    labels: set[str] = set()
    for group in re.findall(r"\bby \(([^)]*)\)", expression):
        labels |= {word.strip() for word in group.split(",")}
    for group in re.findall(r"\{([^}]*)\}", expression):
        labels |= set(re.findall(r"(\w+)=~", group))
    rest = re.sub(r"\{[^}]*\}|\[[^]]*\]|\bby \([^)]*\)", " ", expression)
    return set(re.findall(r"[a-zA-Z_][\w:]*", rest)) - FUNCTIONS, labels


async def test_each_metric_and_label_exists(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:

        async def equal(ctx: Any) -> list[float]:
            return [0.5 for _ in ctx.answers]

        f.world.source.scorer = equal  # a group of equal rewards is dead
        assert (await f.client.post(CHAT, json=BODIES[CHAT])).is_success
        assert (await f.client.post(CHAT, json={})).status_code == 400
        await f.world.closed()
        text = (await f.client.get("/metrics")).text
    known: dict[str, set[str]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, labels = line.partition("{")
            known.setdefault(name.split()[0], set()).update(re.findall(r'(\w+)="', labels))
    metrics: set[str] = set()
    for expression in expressions():
        names, labels = used(expression)
        assert names, expression
        assert names <= set(known), (expression, names - set(known))
        present = set.union(*(known[name] for name in names))
        assert labels <= present | ADDED, (expression, labels - present)
        metrics |= names
    families = {re.sub(r"_(bucket|sum|count)$", "", one) for one in known}
    assert families == {re.sub(r"_(bucket|sum|count)$", "", metric) for metric in metrics}


def test_grafana_can_load_it() -> None:
    assert BOARD["schemaVersion"] >= 36  # data sources by uid
    assert BOARD["uid"] == "ajet-console"
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids)) == len(panels()) > 10
    variables = {one["name"]: one for one in BOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    for panel in panels():
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            refs = [target["refId"] for target in panel["targets"]]
            assert refs
            assert len(set(refs)) == len(refs)
    for name in re.findall(r"\$(\w+)", " ".join(expressions())):
        assert name in variables or name == "__rate_interval"


def test_no_panel_covers_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize(
    ("expression", "names", "labels"),
    [
        ('sum by (le) (rate(a:b_total{x=~"$x"}[5m]))', {"a:b_total"}, {"le", "x"}),
        ("60 * max(one) / scalar(two)", {"one", "two"}, set()),
        ("label_values(one, two)", {"one"}, {"two"}),
    ],
)
def test_the_reader_of_queries(expression: str, names: set[str], labels: set[str]) -> None:
    assert used(expression) == (names, labels)
