"""The Progress screen: verdict, chart, parts, prompts, keys."""

from textual.widgets import Static

from console.screens.progress.screen import ProbePromptScreen
from console.widgets.item_list import ItemList
from console.widgets.pane import TextPane
from core.events import (
    Checkpoint,
    CheckpointsListed,
    EngineChanged,
    TrainingPaused,
    TrainingResumed,
)
from core.state import State
from tests.support.console import NOW, RunningConsole, run_console, sample_events, state_of
from tests.support.looks import (
    SERVER,
    baseline,
    broken_look,
    look,
    looks,
    probe_set,
    running_look,
)

OTHER = "gpu"


def question(console: RunningConsole) -> str:
    """Return the text of the open dialog."""
    return "\n".join(str(one.content) for one in console.app.screen.query(Static))


def in_use(*more: object) -> State:
    return state_of(*sample_events(), *looks(), *more)  # type: ignore[arg-type]


async def test_key_name_and_digit_open_the_screen_and_nothing_is_lost_at_any_size() -> None:
    async with run_console(in_use()) as console:
        for keys in (["f8"], ["1", "8"], ["1", "colon", *"progress", "enter"]):
            await console.press(*keys)
            assert console.app.current_mode == "progress"
            assert "Better by 0.21" in console.text()
        for size in ((80, 24), (160, 48)):
            await console.pilot.resize_terminal(*size)
            await console.settle()
            text = console.text()
            for words in (
                "▲ Better by 0.21 (0.12 to 0.30) than at step 1, on 64 shipped prompts",
                "now 0.62 (0.55 to 0.69)",
                "1,024 samples",
                "LOOKS  probe 0.62 (0.55 to 0.69)  training 0.67",
                "◉ baseline",
                "● probe with its interval",
                "training reward",
                "relevance",
                "answer length",
                "answer repetition",
                "What is the capital of France?",
                "Why is the sky blue?",
            ):
                assert words in text, words
            assert ("BEFORE AND NOW" in text) == (size[0] > 80)
            assert "server embedded" not in text  # it is the only one
            assert "Next server" not in text
        assert "The capital of France is" in console.text()
        await console.press("down")
        assert "17 + 25 is 32." in console.text()
        assert "The capital of France is" not in console.text()


async def test_comparisons_show_wins_and_no_empty_column() -> None:
    events = (*sample_events(), probe_set(), baseline(mode="wins"), look("l", 12, mode="wins"))
    async with run_console(state_of(*events), size=(160, 48), at="progress") as console:
        rows = console.text().splitlines()
        assert any("change   wins  answer   prompt" in row for row in rows)
        assert any("+0.45   0.95  other    What is the capital" in row for row in rows)
        assert "BEFORE  step 1" in console.text()


async def test_enter_opens_the_answers_and_brackets_go_to_the_others() -> None:
    async with run_console(in_use(), at="progress") as console:
        await console.press("down", "enter")
        assert isinstance(console.app.screen, ProbePromptScreen)
        text = console.text()
        for words in (
            "PROBE PROMPT  sum  2 of 4",
            "reference 42",
            "BEFORE  step 1",
            "NOW  step 12",
        ):
            assert words in text, words
        await console.press("right_square_bracket")
        assert "haiku  3 of 4" in console.text()
        assert "the same text" in console.text()
        await console.press(*["left_square_bracket"] * 9)
        assert "capital  1 of 4" in console.text()
        console.link.publish(baseline("b2", 13))
        await console.settle()
        assert "It is not in the newest look" in console.text()
        await console.press("escape")
        assert console.app.current_mode == "progress"
        assert "Baseline taken at step 13" in console.text()


async def test_a_new_look_is_painted_at_once() -> None:
    async with run_console(state_of(*sample_events(), probe_set()), at="progress") as console:
        assert "No look yet" in console.text()
        assert "l takes it now" in console.text()
        assert "from the first look on" in console.text()
        console.link.publish(*running_look(128, "baseline", step=1))
        await console.settle()
        assert "First look: 128 of 512 answers" in console.text()
        assert "128/512" in console.text()
        console.link.publish(baseline())
        await console.settle()
        assert "Baseline taken at step 1; the verdict follows the next look" in console.text()
        assert "◉ baseline" in console.text()
        console.link.publish(look("l1", 12, outcome="worse"))
        await console.settle()
        assert "▼ Worse by 0.21" in console.text()
        assert "relevance" in console.text()
        console.link.publish(broken_look("l2", 13, "cut", "the weights were replaced"))
        await console.settle()
        assert "▼ Worse by 0.21" in console.text()
        assert "! The look at step 13 was cut short: the weights were replaced" in console.text()


async def test_the_bar_of_a_running_look_moves_with_the_clock() -> None:
    async with run_console(in_use(*running_look(128)), at="progress") as console:
        assert "about 24 s left" in console.text()
        console.clock.now += 8
        console.session.touch(["clock"])
        await console.settle()
        assert "about 48 s left" in console.text()


async def test_the_first_look_shows_its_time_before_its_first_answers() -> None:
    first = [probe_set(), *running_look(0, "baseline", step=1)]
    async with run_console(state_of(*sample_events(), *first), at="progress") as console:
        assert "0/512 answers  8s" in console.text()
        await console.press("1")
        assert "First look: 0 of 512 answers, 8s" in console.text()
        console.clock.now += 60
        console.session.touch(["clock"])
        await console.settle()
        assert "First look: 0 of 512 answers, 1m08" in console.text()
        await console.press("8")
        assert "0/512 answers  1m08" in console.text()


async def test_l_takes_a_look_and_t_asks_before_a_new_baseline_as_the_palette_does() -> None:
    async with run_console(in_use(), at="progress") as console:
        await console.press("l")
        assert console.link.commands.pop() == ("progress.look", {"server": SERVER})
        await console.press("t")
        text = question(console)
        assert "Trust step 12 as the new baseline?" in text
        assert "not with step 1" in text
        await console.press("n")
        assert console.link.commands == []
        await console.press("t", "y")
        assert console.link.commands.pop() == ("progress.trust", {"server": SERVER})
        await console.press("1", "ctrl+p", *"trust this step", "enter")
        assert question(console) == text
        await console.press("n")
        assert console.link.commands == []
        await console.press("ctrl+p", *"trust this step", "enter", "y")
        assert console.link.commands == [("progress.trust", {"server": SERVER})]


async def test_w_asks_and_restores_the_best_verified_step() -> None:
    saved = (
        Checkpoint(name="progress-2", step=7, at=NOW - 90, bytes=9),
        Checkpoint(name="latest", step=11, at=NOW - 9, bytes=9),
    )
    events = (
        look("l8", 8, checkpoint="progress-2"),
        look("l9", 12, 0.2, "worse"),
        CheckpointsListed(server=SERVER, checkpoints=saved),
    )
    async with run_console(in_use(*events), at="progress") as console:
        assert "best verified step 8" in console.text()
        await console.press("w")
        text = question(console)
        for words in (
            "The best verified step is restored, step 8: better by 0.21 (0.12 to 0.30).",
            "progress-2: saved 1m ago, after update 7.",
            "4 updates since then are given up.",
            "The present policy is kept as before-restore",
        ):
            assert words in text, words
        await console.press("n")
        assert console.link.commands == []
        await console.press("w", "y")
        assert console.link.commands == [("progress.rewind", {"server": SERVER})]


async def test_without_a_checkpoint_there_is_no_rewind() -> None:
    offered = CheckpointsListed(server=SERVER)
    async with run_console(in_use(offered), at="progress") as console:
        assert "Rewind" not in console.text()
        await console.press("w")
        assert console.link.commands == []


async def test_a_baseline_with_a_checkpoint_is_the_best_step_without_a_better_one() -> None:
    events = (*sample_events(), probe_set(), baseline(checkpoint="progress-1"))
    async with run_console(state_of(*events), at="progress") as console:
        await console.press("w")
        text = question(console)
        assert "No step is better with certainty: the baseline, step 1, is restored." in text


async def test_p_pauses_training_and_r_resumes_it() -> None:
    async with run_console(in_use(), at="progress") as console:
        assert "p Pause" in console.text()
        await console.press("r")
        assert console.link.commands == []
        await console.press("p")
        console.link.publish(TrainingPaused(server=SERVER, cause="step 12 is\x1b[2J worse"))
        await console.settle()
        text = console.text()
        assert "! Training is paused, requests do not train: step 12 is" in text
        assert "p Pause" not in text
        assert "r Resume" in text
        await console.press("p", "r")
        names = [name for name, _ in console.link.commands]
        assert names == ["progress.pause", "progress.resume"]
        console.link.publish(TrainingResumed(server=SERVER))
        await console.settle()
        assert "paused" not in console.text()


async def test_without_a_probe_set_no_key_is_offered() -> None:
    error = "rows.jsonl:3: the line has no prompt"
    async with run_console(state_of(*sample_events()), at="progress") as console:
        for words in ("The probe set is not known yet", f"No probe set: {error}"):
            assert words in console.text()
            assert "Look now" not in console.text()
            await console.press("l", "t")
            assert console.link.commands == []
            console.link.publish(probe_set(error=error))
            await console.settle()


async def test_a_read_only_console_offers_no_command() -> None:
    async with run_console(in_use(), at="progress", read_only=True) as console:
        assert "Better by 0.21" in console.text()
        assert "Look now" not in console.text()
        await console.press("l", "t")
        assert console.link.commands == []


async def test_n_shows_the_next_server() -> None:
    more = (
        EngineChanged(server=OTHER, state="ROLLING", step=3, url="http://gpu:10086"),
        probe_set(server=OTHER),
        baseline("g1", 2, server=OTHER),
    )
    async with run_console(in_use(*more), at="progress") as console:
        assert "server embedded" in console.text()
        await console.press("n")
        assert "server gpu" in console.text()
        assert "Baseline taken at step 2" in console.text()
        await console.press("l")
        assert console.link.commands == [("progress.look", {"server": OTHER})]
        await console.press("n")
        assert "server embedded" in console.text()


async def test_tab_goes_to_the_parts_and_arrows_scroll_them() -> None:
    async with run_console(in_use(), size=(70, 18), at="progress") as console:
        assert "answer repetition" not in console.text()
        parts = console.app.screen.query_one("#progress-parts", TextPane)
        await console.press("shift+tab")
        assert parts.has_focus
        assert parts.has_class("-selected")
        await console.press("end")
        await console.until(lambda: "answer repetition" in console.text())
        await console.press("tab")
        assert console.app.screen.query_one(ItemList).has_focus
        assert not parts.has_class("-selected")


async def test_looks_that_are_off_are_named_and_have_no_keys() -> None:
    off = "Looks are off: set `probe.share` above 0, restart the proxy"
    async with run_console(
        state_of(*sample_events(), probe_set(enabled=False)), at="progress"
    ) as console:
        assert off in console.text()
        assert "l takes it now" not in console.text()
        await console.press("l", "t")
        assert console.link.commands == []
        await console.press("1")
        line = next(row for row in console.text().splitlines() if "PROGRESS" in row)
        assert f"{off}  8" in line


async def test_overview_shows_the_sentence_once_there_is_one() -> None:
    async with run_console(state_of(*sample_events()), at="overview") as console:
        assert "PROGRESS" not in console.text()
        console.link.publish(probe_set(), baseline())
        await console.settle()
        assert "PROGRESS  · Baseline taken at step 1" in console.text()
        console.link.publish(look("l1", 12))
        await console.settle()
        line = next(row for row in console.text().splitlines() if "PROGRESS" in row)
        assert "▲ Better by 0.21 than at step 1, on 64 shipped prompts  8" in line
        assert console.app.screen.query_one("#overview-progress", Static).display
