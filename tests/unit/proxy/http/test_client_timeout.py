"""The timeout of a client: read from its headers and kept with the group."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from core.events import GroupOpened
from proxy.dialects.client_marks import client_timeout
from tests.support.proxy.world import world


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0.0),
        ({"x-stainless-timeout": "60"}, 60.0),
        ({"x-stainless-read-timeout": "12.5"}, 12.5),
        ({"x-stainless-read-timeout": "600", "x-stainless-timeout": "20"}, 20.0),
        ({"x-stainless-timeout": "60000"}, 0.0),  # milliseconds
        ({"x-stainless-timeout": "NOT_GIVEN"}, 0.0),
        ({"x-stainless-timeout": "nan"}, 0.0),
        ({"x-stainless-timeout": "inf"}, 0.0),
        ({"x-stainless-timeout": "-1"}, 0.0),
    ],
)
def test_the_headers_of_the_sdks_are_read(headers: Mapping[str, str], seconds: float) -> None:
    assert client_timeout(headers, stream=False) == seconds


def test_keep_alives_outlast_the_timeout_of_a_stream() -> None:
    assert client_timeout({"x-stainless-timeout": "60"}, stream=True) == 0.0


async def test_the_timeout_is_stored_with_the_group(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        ticket = await w.ask("q", {"x-stainless-timeout": "30"})
        await w.reply(ticket)
        (opened,) = w.kinds(GroupOpened)
        assert opened.client_timeout == 30.0
        assert w.context.bus.state.groups[ticket.group_id].client_timeout == 30.0
