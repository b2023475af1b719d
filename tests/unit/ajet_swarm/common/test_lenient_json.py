"""JSON of careless writers: halves of pairs, numbers that are none."""

import itertools
import json

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
