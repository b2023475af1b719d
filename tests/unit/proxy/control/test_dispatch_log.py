"""What the log contains of a command."""

from proxy.control.dispatch import identifiers


def test_the_log_contains_no_text() -> None:
    result = identifiers(
        {
            "group_id": "ab12",
            "index": 2,
            "note": "a private matter",
            "order": [1, 0],
            "text": "secret " * 1000,
            "done": True,
            "server": None,
        }
    )
    assert result == "group_id=ab12"


def test_a_name_cannot_break_the_log() -> None:
    assert "\n" not in identifiers({"key": "a\nERROR forged", "server": "\x1b[31m"})
    assert "\x1b" not in identifiers({"server": "\x1b[31m"})
