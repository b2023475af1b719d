"""What the proxy's tests share: quick clocks."""

import pytest

from tests.support.proxy.quick_clocks import quick


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
