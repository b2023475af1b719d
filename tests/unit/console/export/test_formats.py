"""What each format makes of a group, also of one with several raters."""

from typing import Any

import pytest
from msgspec.structs import replace

from console.export.records import rater_hash
from core.events import (
    DisagreementSettled,
    EpisodesEnded,
    GroupClosed,
    GroupRated,
    GroupSealed,
    RatingUndone,
    TrainingRunIdentified,
    VoteCast,
    VoteWithdrawn,
)
from core.state.common import record_of
from tests.support.checks import missing
from tests.support.ranked import called, ranked_group
from tests.unit.console.export.conftest import Exporter, Row

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


def texts(messages: list[Row]) -> list[str]:
    """The texts of messages."""
    return [message["content"] for message in messages]


def test_a_pair_is_the_winner_and_the_worst(exported: Exporter) -> None:
    group = ranked_group("g", answers=["a", "b", "c"], rewards=[0.2, 0.9, 0.5])
    (row,), _ = exported("preference", group)
    assert texts(row["prompt"]) == ["What is 2 + 3?"]
    assert (texts(row["chosen"]), texts(row["rejected"])) == (["b"], ["a"])
    assert (row["chosen_reward"], row["rejected_reward"]) == (0.9, 0.2)
    assert (row["provenance"]["candidates"], row["tools"]) == ([1, 0], "null")


@pytest.mark.parametrize("rewards", [(0.5, 0.5), (0.5,), ()])
def test_equal_rewards_make_no_pair(exported: Exporter, rewards: tuple[float, ...]) -> None:
    answers = ["a", "b"][: max(len(rewards), 1)]
    rows, report = exported("preference", ranked_group("g", answers=answers, rewards=rewards))
    assert (rows, report.left_out) == ([], {"no pair: fewer than two rewards, or all equal": 1})


def test_the_vote_of_a_person_beats_the_automatic_reward(exported: Exporter) -> None:
    vote = {"rating": "best", "order": (0,), "blind": True}
    group = ranked_group(
        "g", answers=["a", "b", "c"], rewards=[0.1, 0.9, 0.3], vote=vote, human=[1.0, 0.0, 0.0]
    )
    (row,), _ = exported("preference", group)
    assert (texts(row["chosen"]), texts(row["rejected"])) == (["a"], ["c"])
    provenance = row["provenance"]
    assert provenance["mode"] == "human"
    assert provenance["blind"] is True
    assert provenance["rater"].startswith("rater-")
    (named,), _ = exported("preference", group, names=True)
    assert named["provenance"]["rater"] == "ada"


def test_an_undone_vote_does_not_count(exported: Exporter) -> None:
    vote = {"rating": "best", "order": (1,), "rewards": (0.0, 1.0)}
    group = ranked_group("g", rewards=[0.9, 0.1], vote=vote)
    group.insert(5, RatingUndone(group_id="g", server="embedded", rater="ada"))
    (row,), _ = exported("preference", group)
    assert (texts(row["chosen"]), row["provenance"]["mode"]) == (["5"], "auto")
    assert row["provenance"]["rater"] == ""
    assert exported("preference", group, only_human=True)[0] == []


def test_tool_calls_have_arguments_as_objects(exported: Exporter) -> None:
    group = ranked_group(
        "g",
        answers=[called('{"a": 1}'), called("no JSON"), called('{"b": 2}')],
        rewards=[0.9, 0.0, 0.1],
        tools=TOOLS,
    )
    (row,), report = exported("preference", group)
    (chosen,) = row["chosen"]
    assert chosen["content"] is None
    assert chosen["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": 1}}
    assert row["rejected"][0]["tool_calls"][0]["function"]["arguments"] == {"b": 2}
    assert '"name":"add"' in row["tools"]
    assert report.left_out == {"tool call whose arguments are no JSON object": 1}


def test_labels_are_the_sign_of_the_advantage(exported: Exporter) -> None:
    group = ranked_group("g", answers=["a", "b", "c"], rewards=[1.0, 0.5, 0.0])
    rows, report = exported("unpaired", group)
    assert [(texts(row["completion"]), row["label"]) for row in rows] == [
        (["a"], True),
        (["c"], False),
    ]
    assert report.left_out == {"answer without a label: no reward, or advantage 0": 1}


def test_all_answers_of_a_vote_that_all_are_bad_are_labelled_bad(exported: Exporter) -> None:
    group = ranked_group("g", rewards=[0.5, 0.6], vote={"rating": "bad"}, human=[0.0, 0.0])
    assert [row["label"] for row in exported("unpaired", group)[0]] == [False, False]


def test_a_conversation_ends_with_the_winner_or_the_correction(exported: Exporter) -> None:
    events = [*ranked_group("g0"), *ranked_group("g1", rewards=[0.5, 0.5], edited="five")]
    rows, _ = exported("sft", events)
    assert [texts(row["messages"]) for row in rows] == [
        ["What is 2 + 3?", "5"],
        ["What is 2 + 3?", "five"],
    ]
    assert [row["corrected"] for row in rows] == [False, True]
    assert [row["provenance"]["mode"] for row in rows] == ["auto", "human"]
    assert len(exported("sft", events, only_human=True)[0]) == 1


@pytest.mark.parametrize("rating", ["tie", "bad"])
def test_a_demonstration_after_a_vote_without_a_winner_is_exported(
    exported: Exporter, rating: str
) -> None:
    reward = 0.5 if rating == "tie" else 0.0
    rewards = {"human": [reward, reward], "vote": {"rating": rating}}
    events = [*ranked_group("g0", **rewards), *ranked_group("g1", **rewards, edited="five")]
    rows, _ = exported("sft", events)
    assert [texts(row["messages"]) for row in rows] == [["What is 2 + 3?", "five"]]
    assert [row["corrected"] for row in rows] == [True]
    assert exported("preference", events)[0] == []


def test_a_ranking_has_all_answers_best_first(exported: Exporter) -> None:
    group = ranked_group("g", answers=["a", "b", "c"], rewards=[0.2, 0.9, 0.5])
    (row,), _ = exported("ranking", group)
    assert [answer["index"] for answer in row["answers"]] == [1, 2, 0]
    assert row["answers"][0]["parts"] == [
        {"name": "exact", "value": 0.9, "weight": 1.0, "gate": False, "reason": ""}
    ]


def test_everything_of_a_group_is_in_jsonl(exported: Exporter) -> None:
    run = TrainingRunIdentified(server="embedded", number=1, name="math.3")
    vote = {"rating": "scores", "scores": (0.2, 0.8), "note": "why", "tags": ("style",)}
    group = ranked_group("g", vote=vote, human=[0.2, 0.8], edited="better", reference="5")
    (row,), _ = exported("jsonl", [run, *group])
    assert (row["request"]["messages"][0]["content"], row["reference"]) == ("What is 2 + 3?", "5")
    assert [answer["automatic"] for answer in row["answers"]] == [1.0, 0.0]
    assert ([answer["human"] for answer in row["answers"]], row["vote"]["note"]) == (
        [0.2, 0.8],
        "why",
    )
    assert (row["vote"]["tags"], row["correction"]["text"]) == (["style"], "better")
    provenance = row["provenance"]
    assert (provenance["weights"], provenance["reward_version"]) == ("embedded/math.3/7", "v1")
    assert provenance["time"].endswith("Z")


def test_rows_of_the_dataset_have_each_prompt_once(exported: Exporter) -> None:
    chat = [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}]
    events = [
        *ranked_group("g0", "Q", reference="5", row_id="r1", dataset_task_id="r1"),
        *ranked_group("g1", "Q", reference="5", row_id="r1", dataset_task_id="r1"),
        *ranked_group("g2", chat),
    ]
    rows, report = exported("dataset", events)
    assert [(row.get("query"), row.get("answer"), row.get("system")) for row in rows] == [
        ("Q", "5", None),
        ("Q", None, "S"),
    ]
    assert (rows[0]["id"], report.left_out) == ("r1", {"prompt that is already in the file": 1})


def test_verl_has_the_prompts_with_a_reference(exported: Exporter) -> None:
    import pyarrow.parquet

    events = [
        *ranked_group("g0", "Q1", reference="5", metadata={"data_source": "openai/gsm8k"}),
        *ranked_group("g1", "Q2"),
        *ranked_group("g2", "Q1", reference="5"),
        *ranked_group("g3", "Q3", reference="7"),
    ]
    _, report = exported("verl", events)
    (path,) = report.files
    rows = pyarrow.parquet.read_table(path).to_pylist()
    assert [row["prompt"] for row in rows] == [
        [{"role": "user", "content": "Q1"}],
        [{"role": "user", "content": "Q3"}],
    ]
    assert [row["data_source"] for row in rows] == ["openai/gsm8k", "ajet-console"]
    assert rows[0]["reward_model"] == {"style": "rule", "ground_truth": "5"}
    assert [row["extra_info"] for row in rows] == [
        {"split": "train", "index": 0},
        {"split": "train", "index": 1},
    ]


def test_a_single_answer_with_a_vote_is_a_conversation(exported: Exporter) -> None:
    best, bad = {"rating": "best", "order": (0,)}, {"rating": "bad"}
    events = [
        *ranked_group("g0", answers=["a"], rewards=[0.5], vote=best, human=[1.0]),
        *ranked_group("g1", answers=["b"], rewards=[0.5], vote=bad, human=[0.0]),
        *ranked_group("g2", answers=["c"], rewards=[0.5]),
        *ranked_group("g3", answers=["d"], rewards=[0.5], edited="better"),
    ]
    rows, _ = exported("sft", events)
    assert [row["messages"][-1]["content"] for row in rows] == ["a", "better"]
    assert len(exported("sft", events, only_human=True)[0]) == 2


def test_the_provenance_of_a_ranking_names_the_answers_in_it(exported: Exporter) -> None:
    group = ranked_group("g", answers=[called("no JSON"), "b"])
    (row,), _ = exported("ranking", group)
    assert [answer["index"] for answer in row["answers"]] == row["provenance"]["candidates"] == [1]


def test_ids_of_a_dataset_are_unique(exported: Exporter) -> None:
    events = [
        *ranked_group("g0", "Q1", row_id="r1"),
        *ranked_group("g1", "Q2", row_id="r1"),
        *ranked_group("g2", "Q3"),
        *ranked_group("g3", "Q3", reference="5"),
    ]
    rows, _ = exported("dataset", events)
    ids = [row["id"] for row in rows]
    assert (ids[0], len(set(ids))) == ("r1", 4)
    assert [row["id"] for row in exported("dataset", events)[0]] == ids


@pytest.mark.parametrize("name", ["jsonl", "dataset", "ranking"])
@pytest.mark.parametrize("redact", [True, False])
def test_pyarrow_reads_rows_of_different_shapes(
    exported: Exporter, name: str, redact: bool
) -> None:
    import pyarrow.json

    events = [
        *ranked_group("g0", "Q1", [called('{"a": 1}'), "x"], metadata={"level": 1}),
        *ranked_group("g1", "Q2", [called('{"a": {"b": "x"}}'), "x"], metadata={"level": ["x"]}),
        *ranked_group("g2", "Q3", [called('{"a": "x"}'), "x"], metadata={"password": "Word7!Word"}),
    ]
    rows, report = exported(name, events, redact=redact)
    assert pyarrow.json.read_json(next(iter(report.files))).num_rows == 3
    assert ("Word7!Word" in str(rows)) == (not redact and name != "ranking")


@pytest.mark.parametrize("name", ["preference", "unpaired", "sft"])
def test_formats_of_trl_keep_arguments_as_objects(exported: Exporter, name: str) -> None:
    events = [
        *ranked_group("g0", "Q1", [called('{"a": 1}'), "x"]),
        *ranked_group("g1", "Q2", [called('{"a": "x"}'), "x"]),
    ]
    rows, _ = exported(name, events)
    assert not missing(str(rows), "'arguments': {'a': 1}", "'arguments': {'a': 'x'}")


NAMES: dict[str, Any] = {"group_id": "g", "server": "embedded"}


MEAN = {"rating": "scores", "rater": "ada, bob", "raters": ("ada", "bob"), "blind": True}


def vote(rater: str, *rewards: float) -> VoteCast:
    """A vote with these rewards."""
    return VoteCast(**NAMES, rating="scores", rewards=rewards, rater=rater)


def voted(*more: Any) -> list[Any]:
    """A group that was sent with the mean of two votes, and what came after its end."""
    events = ranked_group(
        "g", answers=["a", "b", "c"], rewards=[0.1, 0.2, 0.9], vote=MEAN, human=[0.5, 0.5, 0.0]
    )
    votes = [
        vote("ada", 1.0, 0.0, 0.0),
        vote("eve", 0.0, 0.0, 1.0),
        VoteWithdrawn(**NAMES, rater="eve"),
        vote("bob", 0.0, 1.0, 0.0),
    ]
    return [*events[:4], *votes, *events[4:], *more]


def test_each_vote_is_exported_without_the_names_of_its_raters(exported: Exporter) -> None:
    (row,), _ = exported("jsonl", voted())
    pseudonyms = [rater_hash("ada"), rater_hash("bob")]
    assert row["vote"]["raters"] == pseudonyms
    assert row["vote"]["votes"] == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert row["vote"]["rater"] == row["provenance"]["rater"] == ", ".join(pseudonyms)
    assert [answer["human"] for answer in row["answers"]] == [0.5, 0.5, 0.0]
    assert not row["vote"]["settled"]
    (named,), _ = exported("jsonl", voted(), names=True)
    assert named["vote"]["raters"] == ["ada", "bob"]


def test_a_disagreement_settled_after_sending_decides_the_preference(exported: Exporter) -> None:
    decision = DisagreementSettled(
        **NAMES, rating="best", order=(1,), rewards=(0.0, 1.0, 0.0), rater="lead", sent=True
    )
    (row,), _ = exported("preference", voted(decision))
    assert row["chosen"][0]["content"] == "b"
    assert row["provenance"]["rater"] == rater_hash("lead")
    (whole,), _ = exported("jsonl", voted(decision))
    assert whole["vote"]["settled"]
    assert [answer["reward"] for answer in whole["answers"]] == [0.0, 1.0, 0.0]
    assert whole["answers"][1]["advantage"] > 0 > whole["answers"][0]["advantage"]


def late(rater: str, *rewards: float) -> list[Any]:
    """A vote after the end of the group."""
    cast = vote(rater, *rewards)
    return [cast, record_of(GroupRated, cast, raters=(rater,))]


@pytest.mark.parametrize("phase", ["DONE", "ABORTED"])
def test_a_late_vote_decides_the_preference(exported: Exporter, phase: str) -> None:
    events = ranked_group("g", answers=["a", "b", "c"], rewards=[0.1, 0.2, 0.9])
    if phase == "ABORTED":
        unsent = [event for event in events if not isinstance(event, GroupSealed | EpisodesEnded)]
        events = [
            replace(event, phase=phase) if isinstance(event, GroupClosed) else event
            for event in unsent
        ]
        assert exported("preference", events)[0] == []
    (row,), _ = exported("preference", [*events, *late("ada", 0.0, 1.0, 0.0)])
    assert (row["chosen"][0]["content"], row["chosen_reward"]) == ("b", 1.0)
    assert row["provenance"]["mode"] == "human"
    (whole,), _ = exported("jsonl", [*events, *late("ada", 0.0, 1.0, 0.0)])
    assert [answer["automatic"] for answer in whole["answers"]] == [0.1, 0.2, 0.9]
    assert whole["vote"]["rater"] == rater_hash("ada")
