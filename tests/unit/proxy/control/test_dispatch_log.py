"""What the log contains of a command."""

from proxy.control.dispatch import without_texts


def test_the_log_contains_only_the_size_of_texts() -> None:
    result = without_texts(
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
    assert result == (
        "group_id=ab12 index=2 note=(16 characters) order=(2 items) text=(7000 characters) "
        "done=True server=None"
    )


def test_a_name_cannot_break_the_log() -> None:
    assert "\n" not in without_texts({"key": "a\nERROR forged", "server": "\x1b[31m"})
    assert "\x1b" not in without_texts({"server": "\x1b[31m"})
