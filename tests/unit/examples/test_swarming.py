"""Which server an example uses, how long it waits for it, and the error when it is gone."""

import argparse

import pytest

from ajet_swarm import SwarmClient
from ajet_swarm.common.errors import UsageError
from examples.ask import Asker
from examples.multi_model.__main__ import ROLES
from examples.multi_model.teacher_student import teach
from examples.stage import StageError
from examples.swarming import OWN_PATIENCE, REAL, Pace, flags, named_servers, pace_of
from tests.support.scripted.threaded_swarm import threaded_swarm

URL = "http://gpu:10086"


def parsed_args(*words: str) -> argparse.Namespace:
    parser = flags("x", 3)
    for role in ROLES:
        parser.add_argument(f"--{role}", default="")
    return parser.parse_args(words)


def test_a_named_server_gets_the_time_a_real_one_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AJET_SWARM_URL", raising=False)
    assert pace_of(parsed_args(), 6.0) == Pace(6.0, OWN_PATIENCE)
    assert pace_of(parsed_args(), 6.0, URL) == REAL
    monkeypatch.setenv("AJET_SWARM_URL", URL)
    assert pace_of(parsed_args(), 6.0) == REAL
    assert pace_of(parsed_args("--idle", "9", "--patience", "700"), 6.0) == Pace(9.0, 700.0)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_seconds_are_above_zero(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed_args("--idle", seconds)
    assert "--idle" in capsys.readouterr().err


def test_one_address_for_several_servers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AJET_SWARM_URL", raising=False)
    assert named_servers(parsed_args(), ROLES) == {}
    with pytest.raises(UsageError, match=r"Give --executor URL, too"):
        named_servers(parsed_args("--planner", URL), ROLES)
    monkeypatch.setenv("AJET_SWARM_URL", URL)
    with pytest.raises(UsageError, match=r"names one server.*Give --planner URL --executor URL"):
        named_servers(parsed_args(), ROLES)
    both = parsed_args("--planner", URL, "--executor", URL)
    assert named_servers(both, ROLES) == {"planner": URL, "executor": URL}


@pytest.mark.slow
def test_a_teacher_that_is_gone_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("examples.multi_model.teacher_student.BATCH", 1)
    monkeypatch.setattr("examples.multi_model.teacher_student.REPEATS", 1)
    with (
        threaded_swarm(batch=8, repeat=4) as swarm,
        SwarmClient("http://127.0.0.1:9", patience=0.1) as teacher,
        SwarmClient(swarm.url) as student,
        Asker() as asker,
        pytest.raises(StageError, match="a batch without one episode"),
    ):
        teach(teacher, student, asker, 1, Pace(20.0, 20.0))
    assert not any(episode.claimed for episode in swarm.server.episodes.values())
