"""The engine's list of checkpoints has the fields that the proxy reads."""

import msgspec

from core.events import Checkpoint
from engine.interface import Checkpoint as EngineCheckpoint


def test_each_field_is_one_of_the_engine() -> None:
    """An unknown name would silently be the default: a list of loss named checkpoints that stay."""
    sent = EngineCheckpoint(name="latest", step=4, bytes=9, at=1.0, base="b", internal=True)
    read = msgspec.convert(sent, Checkpoint, from_attributes=True)
    assert read == Checkpoint(name="latest", step=4, bytes=9, at=1.0, internal=True)
    names = {field.name for field in msgspec.structs.fields(Checkpoint)}
    assert names <= set(EngineCheckpoint.__dataclass_fields__)
