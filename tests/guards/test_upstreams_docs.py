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


def test_the_servers_that_take_images_are_documented() -> None:
    section = PAGE.partition("## Images")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0].strip("| ") for row in rows] == [
        "upstream",
        "AgentJet server, `servers.NAME.vision: true`",
        "AgentJet server otherwise (default)",
        "embedded engine",
        "observe mode",
    ]


@pytest.mark.parametrize(
    "fact",
    [
        "drops its message",
        "`: keepalive`",
        "without a chunk and without `[DONE]`",
        "`rollout_until_all_clients_agree_sync_weight`",
        "`agree_sync_weight()`",
        "3600 s",
        "aborted in `finally`",
        "`ajet.teacher_model.*`",
        "`ajet.opd.*`",
        "`ajet.rollout.vllm_tool_parser`",
    ],
)
def test_the_behaviour_of_the_newest_agentjet_is_documented(fact: str) -> None:
    assert fact in PAGE.partition("## AgentJet of August 2026")[2].partition("\n## ")[0]
