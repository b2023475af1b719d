"""The Log screen: sources, levels, search, following, folded tracebacks."""

from console.screens.log.widgets import LogView
from tests.support.console import HOSTILE, NOW, RunningConsole, run_console, sample_state


def fill(console: RunningConsole, lines: int = 60) -> None:
    store = console.session.log_store
    for number in range(lines):
        store.add("proxy", f"INFO request r{number} answered", NOW - lines + number)
    for text in (
        "ERROR hook failed",
        "Traceback (most recent call last):",
        '  File "h.py"',
        "E: no",
    ):
        store.add("proxy", text, NOW)
    store.add("engine", f"WARNING {HOSTILE}", NOW)
    store.add("engine", "DEBUG quiet", NOW)
    console.session.touch(["log"])


def view(console: RunningConsole) -> LogView:
    return console.app.screen.query_one(LogView)


async def test_the_log_shows_all_sources_with_folded_tracebacks_copies_and_appends() -> None:
    async with run_console(sample_state(), at="log") as console:
        assert "no log lines yet" in console.text()
        fill(console)
        await console.settle()
        text = console.text()
        assert '  File "h.py"' not in text
        assert "▸ E: no  · 3 lines" in text
        assert "WARNING [/b][red]" in text
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "quiet" not in text
        assert "following" in text
        await console.press("c")
        assert 'File "h.py"' in console.app.clipboard
        assert "r0 " not in console.app.clipboard
        first = view(console).book.lines[0]
        console.session.note("mock", "row 1")
        await console.settle()
        assert view(console).book.lines[0] is first
        assert view(console).book.lines[-1].text == "row 1"
        assert len({line.number for line in view(console).book.lines}) == len(
            view(console).book.lines
        )


async def test_keys_filter_by_source_and_level() -> None:
    async with run_console(sample_state(), at="log") as console:
        fill(console)
        await console.press("s", "s")
        assert {line.source for line in view(console).book.lines} == {"engine"}
        await console.press("l", "l", "l")
        assert [line.text for line in view(console).book.lines][-1] == "DEBUG quiet"
        await console.press("s", "s", "s", "l", "l")
        assert {line.level for line in view(console).book.lines} == {"warning", "error"}


async def test_search_finds_the_newest_first_goes_both_ways_and_takes_any_letter() -> None:
    async with run_console(sample_state(), at="log") as console:
        fill(console)
        await console.settle()
        await console.press("slash", *"R1", "enter")
        shown = view(console)
        assert shown.book.lines[shown.book.at or 0].text == "INFO request r19 answered"
        await console.press("n")
        assert shown.book.lines[shown.book.at or 0].text == "INFO request r18 answered"
        await console.press("N")
        assert shown.book.lines[shown.book.at or 0].text == "INFO request r19 answered"
        assert "in 11 lines" in console.text()
        await console.press("x")
        assert len(shown.book.lines) == 11
        await console.press("escape")
        assert len(shown.book.lines) > 60
        await console.press("slash", *"h.py", "enter")
        assert '  File "h.py"' in console.text(), "a search unfolds what it finds"
        await console.press("slash", *"s5?", "enter")
        assert console.app.current_mode == "log"
        assert "s5?" in console.text()


async def test_the_match_stays_visible_above_the_detail_line() -> None:
    async with run_console(sample_state(), at="log") as console:
        fill(console)
        await console.settle()
        shown = view(console)
        top = shown.book.lines[shown.book.rows[round(shown.scroll_y)]]
        await console.press("slash", *top.text.split()[2], "enter")
        await console.settle()
        assert shown.book.lines[shown.book.at or 0] is top
        row = shown.book.row_of(shown.book.at or 0)
        assert shown.scroll_y <= row < shown.scroll_y + shown.size.height


async def test_the_log_follows_until_the_operator_scrolls_up() -> None:
    async with run_console(sample_state(), at="log") as console:
        fill(console)
        await console.settle()
        shown = view(console)
        assert shown.scroll_y == shown.max_scroll_y > 0
        await console.press("home")
        await console.settle()
        assert view(console).follow is False
        place = shown.scroll_y
        console.session.note("proxy", "another line")
        await console.settle()
        assert shown.scroll_y == place
        assert "paused" in console.text()
        await console.press("end")
        assert view(console).follow is True
        assert "another line" in console.text()


async def test_a_traceback_is_unfolded_by_key_and_by_click() -> None:
    async with run_console(sample_state(), at="log") as console:
        fill(console)
        await console.settle()
        assert "1 traceback" in console.text()
        await console.press("enter")
        assert '  File "h.py"' in console.text()
        assert "▾ Traceback" in console.text()
        await console.press("enter")
        assert '  File "h.py"' not in console.text()
        shown = view(console)
        row = next(at for at, line in enumerate(console.text().splitlines()) if "▸ E: no" in line)
        await console.pilot.click(LogView, offset=(20, row - shown.region.y))
        await console.settle()
        assert '  File "h.py"' in console.text()
        await console.press("t", "t")
        assert '  File "h.py"' not in console.text()
        assert shown.follow


async def test_a_long_traceback_shows_its_head_first() -> None:
    async with run_console(sample_state(), at="log") as console:
        fill(console)
        store = console.session.log_store
        store.add("proxy", "Traceback (most recent call last):", NOW + 99)
        for number in range(60):
            store.add("proxy", f'  File "deep{number}.py"', NOW + 99)
        store.add("proxy", "RecursionError: too deep", NOW + 99)
        console.session.touch(["log"])
        await console.settle()
        await console.press("enter")
        assert "▾ Traceback" in console.text()
        assert "deep0.py" in console.text()
        assert "deep59.py" not in console.text()


async def test_interleaved_tracebacks_of_two_processes_are_separated() -> None:
    async with run_console(sample_state(), at="log") as console:
        store = console.session.log_store
        for text in ("Traceback (most recent call last):", '  File "a.py"', "ValueError: a"):
            for source in ("proxy", "engine"):
                store.add(source, text.replace("a", "b") if source == "engine" else text, NOW)
        store.add("engine", "Traceback (most recent call last):", NOW)
        console.session.touch(["log"])
        await console.settle()
        assert "▸ ValueError: a  · 3 lines" in console.text()
        assert view(console).book.tracebacks == 2


async def test_the_line_under_the_cursor_is_shown_in_full_below() -> None:
    async with run_console(sample_state(), at="log") as console:
        long = "INFO " + " ".join(f"word{number}" for number in range(25))
        console.session.log_store.add("proxy", long, NOW - 90)
        fill(console, 30)
        await console.settle()
        await console.press("home")
        assert "word24" not in console.text()
        strip, shown = console.app.screen.query_one("#log-line"), view(console)
        assert not strip.display
        await console.press("up")
        assert strip.display
        await console.press(*["up"] * 30)
        assert shown.book.at == 0
        assert "word24" in console.text()
        await console.press("pagedown", "down")
        assert shown.book.at not in (None, 0)
        assert shown.scroll_y > 0
        await console.press("escape")
        assert not strip.display
        await console.press("up", "end")
        assert shown.book.at is None
        assert shown.follow


async def test_dropping_old_lines_keeps_the_folds() -> None:
    from console.screens.log.model import MAX_LINES, SPARE_LINES
    from console.session.logs import LogLine

    async with run_console(sample_state(), at="log") as console:
        shown = view(console)
        texts = ("line", "Traceback (most recent call last):", "  File", "KeyError: 1")
        count = MAX_LINES + SPARE_LINES + 8
        shown.extend(LogLine(at, NOW, "proxy", "info", texts[at % 4]) for at in range(count))
        assert len(shown.book.lines) == MAX_LINES
        assert shown.book.rows[-1] == MAX_LINES - 3
        assert len(shown.book.rows) == MAX_LINES // 2


async def test_lines_are_in_order_of_time_and_state_changes_in_a_row_are_one_row() -> None:
    async with run_console(sample_state(), at="log") as console:
        store = console.session.log_store
        for at, text, kind in ((1, "ROLLING_POST", "e"), (3, "WEIGHT_SYNCING", "e"), (4, "r1", "")):
            store.add("engine", text, NOW + at, kind=kind)
        console.session.touch(["log"])
        await console.settle()
        assert "▸ WEIGHT_SYNCING  · 2 lines" in console.text()
        assert "ROLLING_POST" not in console.text()
        await console.press("up")
        for at, source in ((2, "proxy"), (5, "engine")):
            store.add(source, f"late {at}", NOW + at)
        console.session.touch(["log"])
        await console.settle()
        assert [line.at - NOW for line in view(console).book.lines] == [1, 2, 3, 4, 5]
        assert view(console).book.at == 3
        assert "▸" not in console.text()
