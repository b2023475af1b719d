"""`docs/upstreams.md` tells of every field that a dialect keeps from the upstream."""

from pathlib import Path

import pytest

from proxy.dialects import completions, messages, responses

PAGE = (Path(__file__).parents[2] / "docs" / "upstreams.md").read_text(encoding="utf-8")
OWN = {
    "/v1/completions": completions._LEGACY - {"prompt", "echo", "logprobs"},
    "/v1/responses": responses._OWN,
    "/v1/messages": messages._OWN,
}


@pytest.mark.parametrize("route", OWN)
def test_what_a_dialect_leaves_out_is_told(route: str) -> None:
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| `{route}` |"))
    assert not sorted(name for name in OWN[route] if f"`{name}`" not in row)
