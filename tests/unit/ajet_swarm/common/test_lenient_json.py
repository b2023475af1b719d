"""JSON of careless writers: halves of pairs, numbers that are none."""

import itertools
import json
import math
import time
from collections.abc import Callable

import pytest

from ajet_swarm.common.lenient_json import lenient

pytestmark = pytest.mark.slow


def by_codec(text: str) -> str:
    """What Unicode's own replacement makes of halves."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def test_each_mixture_of_halves_is_what_the_codec_makes_of_it() -> None:
    for length in range(1, 6):
        for some in itertools.product("\ud800\udbff\udc00\udfffa\U0001f600", repeat=length):
            text = "".join(some)
            raw = b'"' + text.encode(errors="surrogatepass") + b'"'  # pairs as two characters each
            assert lenient(raw) == by_codec(text)
            escaped = json.dumps(text)
            assert lenient(escaped) == by_codec(json.loads(escaped))


def test_names_and_numbers() -> None:
    result = lenient('{"\\ud800k": [NaN, -Infinity, 1.5, "\\u00e4\\udfff"], "b": null}')
    assert result == {"\ufffdk": [None, None, 1.5, "ä\ufffd"], "b": None}
    with pytest.raises(json.JSONDecodeError):
        lenient("{")


def computed(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


@pytest.mark.parametrize("piece", ["\\ud800", "\\ud800a", "\\udc00"])
def test_a_text_of_halves_is_read_quicker_than_by_the_codec(piece: str) -> None:
    text = '"' + piece * 200_000 + '"'
    ours = codec = math.inf
    for _ in range(12):  # in turns: a busy machine slows down one as much as the other
        ours = min(ours, computed(lambda: lenient(text)))
        codec = min(codec, computed(lambda: by_codec(json.loads(text))))
        if ours < 0.7 * codec:
            return
    raise AssertionError(f"{ours:.3f} s, the codec {codec:.3f} s")
