"""A body accepted as ordinary is one that all checks accept unchanged."""

from copy import deepcopy
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.chat import request
from proxy.dialects.validation import is_ordinary

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.just(10**400),
    st.lists(st.integers(), max_size=2),
)
FIELDS = st.sampled_from(
    ("model", "max_tokens", "temperature", "stream", "user", "n", "top_p", "stop", "logprobs")
)


@pytest.mark.slow
@given(st.dictionaries(FIELDS, VALUES, max_size=4))
def test_nothing_ordinary_is_refused_or_changed_by_the_checks(fields: dict[str, Any]) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    if is_ordinary(body):
        before = deepcopy(body)
        with patch.object(request, "is_ordinary", lambda _: False):
            request.check(body)
        assert body == before
        assert [type(one) for one in body.values()] == [type(one) for one in before.values()]


def test_a_plain_request_is_ordinary() -> None:
    body = {"model": "m", "messages": [], "max_tokens": 64, "temperature": 0.7, "stream": True}
    assert is_ordinary(body)
    assert not is_ordinary({**body, "tools": []})
    assert not is_ordinary({**body, "temperature": float("nan")})
