"""`docs/guide/upstreams.md` names every field that a dialect withholds from the upstream."""

from pathlib import Path

import pytest

from proxy.dialects import messages, responses
from proxy.dialects.chat import completions

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "upstreams.md").read_text(encoding="utf-8")
OWN = {
    "/v1/completions": completions._LEGACY_ONLY - {"prompt", "echo", "logprobs"},
    "/v1/responses": responses._SERVICE_ONLY,
    "/v1/messages": messages._SERVICE_ONLY,
}


@pytest.mark.parametrize("route", OWN)
def test_fields_that_a_dialect_withholds_are_documented(route: str) -> None:
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| `{route}` |"))
    assert not sorted(name for name in OWN[route] if f"`{name}`" not in row)
