"""Jump mode, help of the focused widget, the mouse on the frame, commands that end a stall."""

from textual.command import CommandList
from textual.widgets import Button, Input, Static

from console.screens.dialogs.abort import AbortScreen
from console.screens.dialogs.jump import LETTERS, JumpScreen, names
from console.screens.group.widgets import Candidates
from console.screens.help import HelpScreen
from console.screens.log.widgets import LogView
from console.screens.overview.screen import RecentGroups
from console.screens.requests.widgets import GroupList
from console.shell.palette import entries
from core.events import AlertRaised, EngineChanged
from tests.support.checks import missing
from tests.support.console import RunningConsole, run_console
from tests.support.sample import NOW, group_events, sample_state, state_of


def jumper(console: RunningConsole) -> JumpScreen:
    screen = console.app.screen
    assert isinstance(screen, JumpScreen)
    return screen


def test_jump_names_are_unique_and_equally_long() -> None:
    for count in (0, 1, 26, 27, 300, 700):
        result = names(count)
        assert len(set(result)) == len(result) == min(count, 26 * 26)
        assert len({len(one) for one in result}) <= 1
    assert names(3) == list(LETTERS[:3])


async def test_a_letter_jumps_to_a_row_and_anything_else_cancels_jump_mode() -> None:
    async with run_console(sample_state(), at="requests") as console:
        groups = console.app.screen.query_one(GroupList)
        await console.press("j", "j")
        third = groups.cursor
        await console.press("home", "ctrl+o")
        assert console.text().rstrip().endswith("Esc")
        names_by_row = {target.at.y: name for name, target in jumper(console).named.items()}
        await console.press(names_by_row[groups.region.y + 2])
        assert groups.cursor == third
        assert groups.has_focus
        for key in ("escape", "9", "ctrl+o"):
            await console.press("ctrl+o", key)
            assert not isinstance(console.app.screen, JumpScreen), key
        await console.press("ctrl+o")
        await console.pilot.click(offset=(40, 12))
        await console.settle()
        assert not isinstance(console.app.screen, JumpScreen)
        assert (console.app.current_mode, groups.cursor) == ("requests", third)
        await console.press("ctrl+o")
        await console.pilot.resize_terminal(100, 30)
        await console.settle()
        assert not isinstance(console.app.screen, JumpScreen)


async def test_a_jump_selects_an_answer_or_a_screen_named_in_the_bar() -> None:
    async with run_console(sample_state(), size=(160, 48), at="rate") as console:
        cards = console.app.screen.query_one(Candidates)
        await console.press("ctrl+o")
        at = {(target.at.x, target.at.y): name for name, target in jumper(console).named.items()}
        panes = [pane for pane in cards.children if pane.display]
        await console.press(at[panes[2].region.x, panes[2].region.y])
        assert (cards.selected, console.link.commands) == (2, [])
        await console.press("f1", "ctrl+o", "g")
        assert console.app.current_mode == "engine"
        bar = console.text().splitlines()[0]
        await console.pilot.click(offset=(bar.index("2 Requests") + 2, 0))
        await console.settle()
        assert console.app.current_mode == "requests"


async def test_jump_mode_lists_the_screens_without_tabs_in_a_line() -> None:
    async with run_console(sample_state()) as console:
        before = console.text().splitlines()
        await console.press("ctrl+o")
        rows = console.text().splitlines()
        head = next(y for y, row in enumerate(rows) if row.startswith(" NEWEST GROUPS"))
        name = rows[head + 2][0]
        assert rows[head + 2] == f"{name}{before[head + 2][1:]}"  # it hides nothing
        assert name.lower() in LETTERS
        assert "Engine" in rows[-1]
        await console.press(name.lower())
        newest = console.app.screen.query_one(RecentGroups)
        assert (newest.place, newest.has_focus) == (1, True)
        await console.press("ctrl+o")
        to = {one.label: name for name, one in jumper(console).named.items() if one.label}
        assert "Overview" not in to
        await console.press(to["Engine"])
        assert console.app.current_mode == "engine"


async def test_help_and_quit_stay_in_the_narrowest_footer() -> None:
    offline = state_of(EngineChanged(server="embedded", state="OFFLINE"))
    async with run_console(offline, size=(60, 20)) as console:
        for key in ("f5", "f1", "f2", "f3", "f4", "f7"):
            await console.press(key)
            foot = console.text().splitlines()[-1]
            assert "^q Quit" in foot
            assert foot.endswith("? Help")
        await console.press("slash")  # in a line of text
        assert console.text().splitlines()[-1] == "⏎ Done esc Clear tab Next f12 Help ^q Quit"
        await console.press("escape", "f1")
        assert "7 Log" not in console.text().splitlines()[-1]
        await console.pilot.resize_terminal(100, 24)
        await console.settle()
        assert "7 Log" in console.text().splitlines()[-1]


async def test_jump_mode_works_in_text_fields_and_dialogs() -> None:
    async with run_console(sample_state(), at="log") as console:
        await console.press("slash", *"abc", "ctrl+o")
        view = console.app.screen_stack[-2].query_one(LogView)
        rows = {target.at.y: name for name, target in jumper(console).named.items()}
        await console.press(rows[view.region.y])
        assert isinstance(console.app.focused, LogView)
        console.app.run_worker(console.app.confirm("Sure?", "much is lost"), exit_on_error=False)
        await console.settle()
        await console.press("ctrl+o")
        assert len(jumper(console).named) == 2
        await console.press("s")
        assert isinstance(console.app.focused, Button)
        assert console.app.focused.id == "yes"
        await console.press("escape")


# --- help ------------------------------------------------------------------------------------


async def test_help_describes_the_focused_widget_also_by_f12_from_a_line_of_text() -> None:
    async with run_console(sample_state(), size=(100, 48), at="requests") as console:
        await console.press("question_mark")
        text = console.text()
        assert not missing(
            text,
            "In focus: the list of requests",
            "This screen: Requests",
            "Its candidates in full",
        )
        await console.press("escape", "f7", "slash", *"a?", "f12")
        assert isinstance(console.app.screen, HelpScreen)
        assert "In focus: a line of text" in console.text()
        await console.press("escape")
        assert console.app.screen.query_one(Input).value == "a?"


async def test_help_lists_conflicting_keys() -> None:
    keys = {"engine.stop": "s", "log.folds": "x"}
    async with run_console(sample_state(), size=(100, 48), keys=keys) as console:
        console.app.clear_notifications()
        await console.press("question_mark")
        results = console.app.screen.query(".dialog-problem").results(Static)
        text = "\n".join(str(result.content) for result in results)
        assert "! console.keys" in console.text()
        assert not missing(
            text,
            "`engine.stop` cannot have `s`: it is the key of `engine.start`",
            "there is no action `log.folds`. Did you mean `log.fold`?",
        )


# --- palette ---------------------------------------------------------------------------------


def held() -> object:
    return state_of(
        EngineChanged(server="embedded", state="ROLLING_POST", step=1, at=NOW - 9),
        *group_events(1, at=NOW - 3, until="AWAITING_RATING"),
        AlertRaised(
            key="hold:embedded", alert_kind="hold", cause="1 open rating holds up the weight update"
        ),
    )


async def test_stall_commands_are_offered_during_a_stall() -> None:
    names = ["Rating: Accept all open groups", "Rating: Abort all open groups"]
    async with run_console(held()) as console:  # type: ignore[arg-type]  # a state
        result = {title: run for title, _, run in entries(console.app)}
        result[names[0]]()
        await console.settle()
        assert console.link.commands.pop() == ("rating.accept_all", {"server": "embedded"})
        result[names[1]]()
        await console.settle()
        assert isinstance(console.app.screen, AbortScreen)
        assert "1 group without a rating" in console.text()
        await console.press("3", "y")
        expected = {"server": "embedded", "reason": "debugging"}
        assert console.link.commands == [("rating.abort_all", expected)]


async def test_the_palette_lists_harmless_commands_first_and_unavailable_ones_with_reasons() -> (
    None
):
    async with run_console(sample_state()) as console:  # the overview points at no group
        titles = [title for title, _, _ in entries(console.app)]
        assert "Rating: Accept all open groups" not in titles  # nothing stalls
        assert "Rating: Abort all open groups" not in titles
        assert all(title.startswith("Screen: ") for title in titles[:6])
        assert titles.index("Console: Help") < titles.index("Engine: Stop")
        assert titles.index("Rating: Switch to hold") < titles.index("Engine: Stop")
        await console.press("ctrl+p", *"refill")
        result = console.app.screen.query_one(CommandList)
        for _ in range(1_000):
            if "Group: Refill: not now" in console.text() and result.highlighted is not None:
                break
            await console.settle()
        assert "Nothing matches" not in console.text()
        await console.press("enter")
        assert "no group selected" in console.text()
        assert console.link.commands == []
        await console.press("ctrl+p", *"zzzq")
        await console.shows("Nothing matches")
        assert "? shows the keys of this screen" in console.text()
        await console.press("enter")
        assert isinstance(console.app.screen, HelpScreen)


async def test_abort_from_the_palette_asks_for_a_reason() -> None:
    async with run_console(sample_state(), size=(80, 30), at="requests") as console:
        await console.press("down")
        bodies = []
        for open_it in ("key", "palette"):
            if open_it == "key":
                await console.press("x")
            else:
                {title: run for title, _, run in entries(console.app)}["Group: Abort"]()
                await console.settle()
            assert isinstance(console.app.screen, AbortScreen)
            body = console.app.screen.query(".dialog-body").first()
            bodies.append(str(body.render()))
            await console.press("1", "y")
        assert bodies[0] == bodies[1]
        assert console.link.commands[0] == console.link.commands[1]
        assert console.link.commands[0][1]["reason"] == "reward miscalculation"


# --- alerts ----------------------------------------------------------------------------------


async def test_an_alert_shows_its_key_and_act_opens_its_screen() -> None:
    async with run_console(held(), size=(80, 24)) as console:  # type: ignore[arg-type]  # a state
        line = next(row for row in console.text().splitlines() if "holds up" in row)
        assert line.rstrip().endswith(" 3")
        assert "a Act" in console.text()
        await console.press("a")
        assert console.app.current_mode == "rate"
        assert "A accepts all" in console.text()
        await console.press("f1", "d")
        assert console.link.commands[-1] == ("alert.dismiss", {"key": "hold:embedded"})


async def test_act_is_unavailable_without_an_alert() -> None:
    async with run_console(state_of(EngineChanged(server="e", state="ROLLING"))) as console:
        assert "a Act" not in console.text()
        await console.press("a")
        assert console.app.current_mode == "overview"
