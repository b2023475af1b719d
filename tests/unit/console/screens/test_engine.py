"""Curves beside and below the table of steps."""

from textual.content import Content

from console.screens.engine.steps import BESIDE, step_table, with_curves
from console.text.lines import line_width
from core.events import UpdateDone
from core.state import Server, State
from tests.support.sample import NOW, group_events, state_of


def trained(steps: int, **stats: float) -> Server:
    state: State = state_of(
        *(
            event
            for step in range(1, steps + 1)
            for event in (
                *group_events(step, step=step, at=NOW - 900 + step),
                UpdateDone(server="embedded", step=step, stats=dict(stats), at=NOW),
            )
        )
    )
    return state.servers["embedded"]


def shown(server: Server, width: int) -> list[str]:
    facts = [Content("address http://127.0.0.1:10086"), Content("model tiny")]
    lines = with_curves(server, facts, step_table(server, NOW, width, 12), width)
    assert all(line.cell_length <= width for line in lines), [line.plain for line in lines]
    return [line.plain for line in lines]


def test_a_long_fact_is_cut_where_the_curves_begin() -> None:
    server = trained(3)
    table = step_table(server, NOW, 150, 12)
    lines = with_curves(server, [Content("x" * 300)], table, 150)
    assert lines[0].cell_length <= 150
    assert "…" in lines[0].plain
    assert "reward" in lines[0].plain


def test_curves_are_drawn_below_a_narrow_table() -> None:
    server = trained(6, kl=0.02, entropy=0.3, response_tokens=20.0)
    width = line_width(step_table(server, NOW, 150, 12)[0]) + BESIDE
    result = shown(server, width)
    table = next(at for at, line in enumerate(result) if "step groups" in line)
    titles = [at for at, line in enumerate(result) if "reward 0.40" in line]
    assert min(titles) > table
    assert "KL 0.020" in result[titles[0]]


def test_a_server_without_update_figures_has_one_curve() -> None:
    result = "\n".join(shown(trained(3), 150))
    assert "reward 0.40" in result
    assert "entropy" not in result


def test_before_the_first_step_the_future_curves_are_announced() -> None:
    server = Server(name="embedded", url="http://x")
    assert "start with the first finished group" in shown(server, 150)[-1]
