"""`try` from the command line, where the proxy does not play along."""

from collections.abc import Mapping
from typing import Any, Self

import pytest

from console import cli_try
from console.cli import main
from core.state import State


class Forgetful:
    """A proxy that takes the order and begins anew: nobody knows of the try."""

    def __init__(self, *told: Any, **more: Any) -> None:
        self.orders: list[str] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def command(self, name: str, args: Mapping[str, Any]) -> None:
        self.orders.append(name)

    async def snapshot(self) -> State:
        return State()


def test_one_that_the_proxy_forgot_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy = Forgetful()
    monkeypatch.setattr(cli_try, "ControlClient", lambda *told, **more: proxy)
    monkeypatch.setattr(cli_try, "token_of", lambda *told: "token")
    monkeypatch.setattr(cli_try, "GIVEN_BACK", 0.1)
    assert main(["try", "hello", "--timeout", "0.1", "--url", "http://127.0.0.1:1"]) == 1
    assert "does not know of the try" in capsys.readouterr().err
    assert proxy.orders == ["engine.try", "engine.try_stop"]
