"""The shipped base weights; saving, loading and exporting of a policy's state."""

import hashlib
import io
from functools import cache
from pathlib import Path

import numpy as np

from engine import tokenizer as bpe
from engine.interface import LATEST, WeightsError
from engine.storage import checkpoint_files as checkpoints
from engine.storage import safetensors
from engine.storage.checkpoint_files import BASE_NAME
from engine.storage.checkpoint_store import CheckpointStore
from engine.storage.weight_tensors import fill_from, to_tensors
from engine.training.model import Config, Params
from engine.training.optimizer import Adam
from engine.training.state import Base, State

DATA = Path(__file__).parents[1] / "data"
BASE, MERGES, SUMS = "base.npz", "merges.txt", "SHA256SUMS"
CONFIG = Config(blocked=bpe.TEMPLATE_ONLY)


def save_base(directory: Path, params: Params, merges: list[tuple[int, int]]) -> None:
    """Write the weights in float16, the merges and their checksums."""
    directory.mkdir(parents=True, exist_ok=True)
    arrays = {name: params[name].astype(np.float16) for name in params.names()}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    (directory / BASE).write_bytes(buffer.getvalue())
    bpe.save_merges(directory / MERGES, merges)
    sums = (f"{_digest(directory / name)}  {name}\n" for name in (BASE, MERGES))
    (directory / SUMS).write_text("".join(sums), encoding="ascii")


def load_base(directory: Path = DATA) -> Base:
    """Read and verify the shipped weights.

    Raises:
        WeightsError: a file is missing, changed, or of other sizes.
    """
    try:
        lines = (directory / SUMS).read_text(encoding="ascii").splitlines()
        expected = {name: digest for digest, name in (line.split() for line in lines)}
        for name in (BASE, MERGES):
            if _digest(directory / name) != expected.get(name):
                raise WeightsError(
                    "The shipped weights differ from their checksum",
                    str(directory / name),
                    "Install ajet-console again.",
                )
        params = Params(CONFIG)
        with np.load(directory / BASE, allow_pickle=False) as arrays:
            for name in params.names():
                params[name][...] = arrays[name]
    except (OSError, ValueError, KeyError) as error:
        raise WeightsError(
            f"The shipped weights cannot be read ({error})",
            str(directory),
            "Install ajet-console again.",
        ) from error
    return Base(params, expected[BASE])


@cache
def shipped() -> Base:
    """Return the shipped weights, read once; do not change their parameters."""
    return load_base()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _file_parts(state: State, base: str) -> list[bytes | memoryview]:
    header = {"base": base, "step": state.step, "t": state.adam.t, "size": state.params.flat.size}
    arrays = (state.params.flat, state.adam.m, state.adam.v)
    return checkpoints.file_parts(
        header, [array.astype("<f4", copy=False).data.cast("B") for array in arrays]
    )


def _unpack(path: Path, base: Base) -> State:
    header, body = checkpoints.read(path, base.digest)
    arrays = np.frombuffer(body, "<f4").reshape(3, -1)
    if arrays.shape[1] != base.params.flat.size:
        raise WeightsError("The checkpoint is of a network of another size", str(path))
    adam = Adam(arrays.shape[1])
    adam.m[...], adam.v[...], adam.t = arrays[1], arrays[2], header["t"]
    return State(Params(base.params.config, arrays[0].astype(np.float32)), adam, header["step"])


class WeightStore(CheckpointStore):
    """Saved states of one policy in one directory; see `CheckpointStore`."""

    def load(self, base: Base) -> State:
        """Return the latest intact state; the base when nothing is saved.

        A damaged latest checkpoint is renamed, with a warning.

        Raises:
            WeightsError: neither of the last two states can be used; names the newest intact
                checkpoint if there is one.
        """
        state = self.load_saved(lambda path: _unpack(path, base), base.digest)
        return State.fresh(base) if state is None else state

    def save(self, state: State, base: Base, name: str = LATEST) -> None:
        """Replace the latest checkpoint, or save the state under its own name.

        Raises:
            SaveError: nothing was replaced; everything saved before is intact.
            CheckpointError: the name is invalid.
        """
        if name != LATEST:
            checkpoints.check_name(name)
        self.write(name, _file_parts(state, base.digest), f"global step {state.step}")

    def import_weights(self, name: str, data: bytes, base: Base) -> int:
        """Save safetensors weights under a name, with a fresh optimizer; return their global step.

        Raises:
            SafetensorsError: names the invalid field; nothing is saved.
            SaveError: they could not be written.
        """
        checkpoints.check_name(name)
        params = base.params.like()
        arrays = {key: params[key] for key in params.names()}
        step, _ = fill_from(data, arrays, base.digest)
        state = State(params, Adam(params.flat.size), step)
        self.write(name, _file_parts(state, base.digest), "the imported weights")
        return state.step


def export(directory: Path, name: str, base: Base, half: bool = False) -> bytes:
    """Return the weights of a checkpoint, or of `base`, as safetensors with base and step. Takes no
    lock.

    Args:
        directory: Folder of the checkpoints.
        name: Name of the checkpoint.
        base: The shipped weights.
        half: float16 instead of float32.

    Raises:
        NoCheckpointError: no checkpoint has this name.
        WeightsError: it is damaged or of another base.
    """
    if name == BASE_NAME:
        state = State.fresh(base)
    else:
        state = _unpack(checkpoints.find(directory, name), base)
    params = state.params
    arrays = {key: params[key] for key in params.names()}
    metadata = {"format": "ajet-console", "base": base.digest, "step": str(state.step)}
    return safetensors.pack(to_tensors(arrays, half), metadata)
