"""The user's guide to the fake vLLM names what there is."""

from pathlib import Path

import msgspec

from core.settings import ProxySettings
from proxy.admission.helper_calls import RULES

GUIDE = (Path(__file__).parents[3] / "docs/guide/serving.md").read_text(encoding="utf-8")
ELSEWHERE = {"host", "port"}
"""In the README."""


def test_every_rule_for_helper_calls_is_in_the_guide() -> None:
    rows = {line.split("|")[1].strip() for line in GUIDE.splitlines() if line.startswith("| `")}
    assert {f"`{rule.name}`" for rule in RULES} <= rows


def test_every_setting_of_the_proxy_is_in_the_guide() -> None:
    names = {field.name for field in msgspec.structs.fields(ProxySettings)} - ELSEWHERE
    assert not [name for name in names if name not in GUIDE]
