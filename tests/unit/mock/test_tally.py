"""Rate and time to go."""

from mock.tally import RunCounters, duration_text


def test_rate_and_time_to_go_follow_the_latest_answers() -> None:
    now = [0.0]
    tally = RunCounters(rows=100, already=20, clock=lambda: now[0])
    assert (tally.rate, tally.eta) == (None, None)
    for second in range(1, 11):
        now[0] = float(second)
        tally.add("")
    assert tally.rate == 1.0
    assert tally.eta == 70.0
    assert "30/100 rows" in tally.line()
    assert "1:10 to go" in tally.line()


def test_failures_are_counted_by_cause() -> None:
    tally = RunCounters(rows=3)
    for error in ("500: oops", "", "500: oops"):
        tally.add(error)
    assert (tally.answered, tally.failed, tally.left) == (1, 2, 0)
    assert tally.errors.most_common(1) == [("500: oops", 2)]


def test_retries_are_counted_beside_failures_with_what_is_waited_for() -> None:
    tally = RunCounters(rows=3)
    tally.retry("the target answers 503: aborted by the operator")
    assert tally.line().endswith(
        "0 failed · 1 retry · the target answers 503: aborted by the operator"
    )
    tally.retry("the target answers 503: full")
    tally.add("")
    assert "1 answered · 0 failed · 2 retries" in tally.line()
    assert "503" not in tally.line()


def test_durations_are_formatted() -> None:
    assert [duration_text(seconds) for seconds in (5, 75, 3675)] == ["0:05", "1:15", "1:01:15"]
