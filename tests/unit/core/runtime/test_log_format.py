"""Log lines: one format, no secrets, nothing that moves a cursor."""

import io
import logging
import re
from collections.abc import Iterator

import pytest

from core.runtime.log_format import setup


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """The log; the loggers are restored afterwards."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    made = io.StringIO()
    setup("INFO", made)
    yield made
    logging.captureWarnings(False)
    root.handlers[:] = before
    root.setLevel(level)


def test_a_line_has_time_level_name_and_message(stream: io.StringIO) -> None:
    logging.getLogger("proxy").info("it %s", "listens")
    logging.getLogger("proxy").debug("not told")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO proxy: it listens\n", stream.getvalue()
    )


def test_keys_and_control_characters_do_not_reach_it(stream: io.StringIO) -> None:
    try:
        raise ValueError("sk-abcdefghijklmnop \x1b[31m")
    except ValueError:
        logging.getLogger("proxy").exception("with Bearer abcdefghijkl")
    text = stream.getvalue()
    assert "Traceback" in text
    assert "abcdefgh" not in text
    assert "\x1b" not in text


def test_libraries_log_only_warnings(stream: io.StringIO) -> None:
    logging.getLogger("httpx").info("HTTP Request: GET ...")
    logging.getLogger("httpx").warning("odd")
    assert stream.getvalue().count("\n") == 1


def test_setting_up_logging_twice_logs_once(stream: io.StringIO) -> None:
    setup("INFO", stream)
    logging.getLogger("x").info("once")
    assert stream.getvalue().count("once") == 1
