"""Events omit default values; scripts get every field."""

from dataclasses import dataclass

import msgspec

from core.events import (
    CandidateScore,
    EndedEpisode,
    EpisodesEnded,
    GroupScored,
    Part,
    decode,
    encode,
)
from core.jsonio import encode_full, every_field
from core.settings import Settings


def test_an_event_leaves_out_its_defaults_and_is_read_back_with_them() -> None:
    parts = (Part("length", 0.5), Part("stop", 1.0, gate=True, reason="stop"))
    event = GroupScored(
        seq=3,
        group_id="g",
        scores=(CandidateScore(0, 0.5, parts),),
        best=0,
        version="v",
        seconds=0.1,
    )
    raw = msgspec.json.decode(encode(event))
    assert raw["scores"][0]["parts"] == [
        {"name": "length", "value": 0.5},
        {"name": "stop", "value": 1.0, "gate": True, "reason": "stop"},
    ]
    assert not {"at", "run_id", "server"} & raw.keys()
    assert decode(encode(event)) == event


def test_scripts_get_every_field() -> None:
    event = EpisodesEnded(group_id="g", episodes=(EndedEpisode(1),))
    body = msgspec.json.decode(encode_full({"events": [event]}))["events"][0]
    assert next(iter(body)) == "kind"
    assert body["kind"] == "episodes_ended"
    assert body.keys() == {"kind", *EpisodesEnded.__struct_fields__}
    assert body["episodes"] == [{"index": 1, "outcome": "ended", "text": ""}]


def test_values_without_records_are_unchanged() -> None:
    assert every_field({"a": [1, None, {"b": (2.5, "x")}]}) == {"a": [1, None, {"b": [2.5, "x"]}]}


@dataclass
class Figures:
    part: Part
    count: int


def test_records_within_other_classes_are_whole_too() -> None:
    result = every_field(Figures(Part("length", 0.5), 2))
    assert result == {
        "part": {"name": "length", "value": 0.5, "weight": 1.0, "gate": False, "reason": ""},
        "count": 2,
    }


def test_fields_have_the_names_of_the_wire() -> None:
    settings = Settings()
    body = msgspec.json.decode(encode_full(settings))
    assert body["servers"] == {}
    assert body.keys() == msgspec.json.decode(msgspec.json.encode(settings)).keys()
