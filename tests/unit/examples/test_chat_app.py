"""The chat application of the persona tutorial, and what the tutorials measure and draw."""

import json
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from examples import picture
from examples.lesson import Row
from examples.math.__main__ import LESSON as MATH
from examples.persona.__main__ import LESSON as PERSONA
from examples.persona.app import Chats, Server, handler
from examples.persona.measure import liveliness


class Model(Chats):
    """Answers without a model; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__("http://model.invalid/v1", "k", "m")
        self.bodies: list[Any] = []
        self.status = 200
        self._http.close()
        self._http = httpx.Client(
            base_url="http://model.invalid/v1", transport=httpx.MockTransport(self._serve)
        )

    def _serve(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.bodies.append(body["messages"])
        result = {"content": f"answer {len(self.bodies)}"}
        return httpx.Response(self.status, json={"choices": [{"message": result}]})

    def close(self) -> None:
        self._http.close()


@pytest.fixture
def app() -> Iterator[tuple[httpx.Client, Model]]:
    model = Model()
    with Server(("127.0.0.1", 0), handler(model)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
            yield client, model
        server.shutdown()
        thread.join()
    model.close()


@pytest.mark.slow
def test_a_chat_goes_on(app: tuple[httpx.Client, Model]) -> None:
    client, model = app
    first = client.post("/chat", json={"message": "one"}).json()
    again = client.post("/chat", json={"message": "two", "chat": first["chat"]}).json()
    assert (first["answer"], again["answer"]) == ("answer 1", "answer 2")
    assert again["chat"] == first["chat"]
    assert [body["content"] for body in model.bodies[1]] == ["one", "answer 1", "two"]
    assert client.post("/chat", json={"message": "x"}).json()["chat"] != first["chat"]


def test_the_page_and_what_is_wrong(app: tuple[httpx.Client, Model]) -> None:
    client, model = app
    assert "<form" in client.get("/").text
    assert client.get("/other").status_code == 404
    for body in (b"[]", b"\xff", b"{}"):
        assert client.post("/chat", content=body).status_code == 400
    assert client.post("/chat", content=b"x" * 70_000).status_code == 404
    model.status = 503
    answer = client.post("/chat", json={"message": "x"})
    assert answer.status_code == 502
    assert "the model does not answer" in answer.json()["error"]


def test_measures() -> None:
    assert (liveliness("A cat."), liveliness("Wow! I love it! Yes!!! Great!")) == (0, 1.0)
    assert MATH.score(Row("What is 2 + 3?", "5"), "2 + 3 is 5.") == 1.0
    assert MATH.score(Row("What is 2 + 3?", "5"), "5 or 6") == 0.0
    (right,) = PERSONA.also.values()
    assert right(Row("?", "a mouse|a mice"), "It is a mice.") == 1.0


def test_no_held_out_question_is_trained_on() -> None:
    for lesson in (MATH, PERSONA):
        held = [json.loads(line) for line in lesson.held_out.read_text().splitlines()]
        rows = [json.loads(line) for line in lesson.dataset.read_text().splitlines()]
        queries = {(row.get("query") or row["question"]).casefold() for row in rows}
        assert len(held) == 64
        assert not queries & {row["query"].casefold() for row in held}


def test_the_plot_is_well_formed() -> None:
    drawn = ElementTree.fromstring(picture.svg("a < b", {0: 0.1, 5: 1.4}, {1: 0.5, 2: -1.0}))
    points = [
        tuple(map(float, pair.split(",")))
        for line in drawn.iter("{http://www.w3.org/2000/svg}polyline")
        for pair in line.attrib["points"].split()
    ]
    assert len(points) == 4
    assert all(0 <= x <= picture.WIDTH and 0 <= y <= picture.HEIGHT for x, y in points)
    assert picture.update_line(1, 0.5, "").count("#") == 10
