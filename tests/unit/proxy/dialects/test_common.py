"""What all readers share: fields, senders, half characters."""

from typing import Any

import pytest

from core.dialects.errors import ApiError
from core.dialects.validation import flag, integer, number
from proxy.dialects.client_marks import session_of
from proxy.dialects.request import decode, join_key, last_user_text, request_id, trains

JSON = "application/json"


@pytest.mark.parametrize(
    ("value", "expected"), [(1, 1), (0.5, 0.5), ("0.5", 0.5), (True, 1), ("-1e3", -1000)]
)
def test_numbers_are_parsed_also_from_text(value: Any, expected: float) -> None:
    assert number("x", value) == expected


@pytest.mark.parametrize("value", [None, [], {}, "a", "inf", "nan", "1e999", 10**400])
def test_invalid_numbers_are_refused(value: Any) -> None:
    with pytest.raises(ApiError, match="Input should be a"):
        number("x", value)


@pytest.mark.parametrize(("value", "expected"), [(1, 1), (2.0, 2), ("3", 3), (True, 1), ("-4", -4)])
def test_integers_are_parsed_also_from_text(value: Any, expected: int) -> None:
    result = integer("x", value)
    assert (result, type(result)) == (expected, int)


@pytest.mark.parametrize(
    "value", [None, [], 1.5, "1.5", float("inf"), 2**63, -(2**63) - 1, 10**4000, "9" * 5000]
)
def test_invalid_integers_are_refused(value: Any) -> None:
    with pytest.raises(ApiError, match="Input should be ") as caught:
        integer("x", value)
    assert caught.value.param == "body.x"


@pytest.mark.parametrize(
    ("value", "expected"), [(True, True), (0, False), (1.0, True), ("Yes", True), ("off", False)]
)
def test_booleans_are_parsed_also_from_words(value: Any, expected: bool) -> None:
    assert flag("x", value) is expected


@pytest.mark.parametrize("value", [None, 2, "", "maybe", [], {}])
def test_invalid_booleans_are_refused(value: Any) -> None:
    with pytest.raises(ApiError, match="valid boolean"):
        flag("x", value)


def test_bodies_in_other_encodings() -> None:
    """As the framework reads them: a mark at the start, two bytes a character."""
    assert decode("{}".encode("utf-16"), JSON) == {}
    assert decode("\ufeff{}".encode(), JSON) == {}
    assert decode('{"a": "é"}'.encode("utf-16-le"), JSON) == {"a": "é"}


def test_lone_surrogates_and_huge_numbers_are_accepted() -> None:
    body = decode(b'{"a\\ud800": ["\\ud83d\\ude00", "\\ud83d", 1e999, NaN]}', JSON)
    assert body == {"a\ufffd": ["\U0001f600", "\ufffd", None, None]}


def test_headers_identify_the_sender() -> None:
    assert trains({})
    assert not any(trains({"x-ajet-train": word}) for word in ("no", " NO ", "false", "0", "off"))
    assert session_of({"session-id": "a", "x-session-id": "b"}, {}) == "b"
    assert session_of({"x-claude-code-session-id": "c"}, {"session_id": "d"}) == "c"
    assert session_of({}, {"session_id": "d" * 300}) == "d" * 200
    assert session_of({}, {"session_id": 1}) == ""
    assert request_id({"x-request-id": " a\u00e9b\n"}) == "ab"
    assert len(request_id({})) == 16
    assert last_user_text([]) == ""
    assert last_user_text([{"role": "system", "content": "a"}]) == "a"


def test_a_key_is_of_one_dialect() -> None:
    """The same bytes to another path are another request."""
    result = (b"{}", {}, "", "", True)
    assert join_key(*result) == join_key(*result)
    assert join_key(*result, "completions") != join_key(*result, "chat")
