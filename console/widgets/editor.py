"""The operator's editor, and other programs, on the terminal while the console is suspended."""

import asyncio
import contextlib
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from textual.app import SuspendNotSupported

from ajet_swarm.common.errors import AjetError
from console.models.app_host import AppHost

FALLBACKS = ("nano", "vim", "vi")
CAP = 1 << 20
"""Most characters of an edited text."""
DRAFTS = 50
"""Most drafts that are kept."""


class EditorError(AjetError):
    """The text could not be edited; nothing has changed."""


def editor_of(environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the command of the editor: `$VISUAL`, `$EDITOR`, or an installed one.

    Raises:
        EditorError: there is no editor.
    """
    known = os.environ if environment is None else environment
    for name in ("VISUAL", "EDITOR"):
        try:
            command = shlex.split(known.get(name, ""))
        except ValueError as error:
            raise EditorError(f"${name} cannot be read: {error}", todo=f"Set {name}") from error
        if command:
            return command
    for name in FALLBACKS:
        if path := shutil.which(name, path=known.get("PATH")):
            return [path]
    raise EditorError("no editor was found", todo="Set EDITOR to the command of your editor")


async def edit_text(app: AppHost, text: str, suffix: str = ".md", draft: Path | None = None) -> str:
    """Return `text` as edited by the operator. The event loop runs on; nothing is painted.

    Args:
        app: The console, which is suspended meanwhile.
        text: The text to edit.
        suffix: Ending of the temporary file, by which an editor knows the format.
        draft: File to edit it in, which outlives a crash; if it exists, its text is edited. The
            caller deletes it. None: a temporary file.

    Raises:
        EditorError: there is no editor, or it failed.
    """
    command = editor_of()
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="ajet-console-"))
    file = draft or folder / f"answer{suffix}"
    try:
        await asyncio.to_thread(_write_new, file, text)
        code = await _run(app, [*command, str(file)])
        if code:
            kept = "the draft is kept" if draft else "the text is unchanged"
            raise EditorError(f"{command[0]} ended with {code}: {kept}")
        edited = await asyncio.to_thread(file.read_text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise EditorError(f"{command[0]}: {error.strerror or error}", todo="Set EDITOR") from error
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, True)
    if len(edited) > CAP:
        raise EditorError(f"the text is longer than {CAP} characters")
    return edited if text.endswith("\n") else edited.removesuffix("\n")


def _write_new(file: Path, text: str) -> None:
    """Write a private file unless it exists; of the files beside it the newest few stay."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    others = sorted(file.parent.iterdir(), key=lambda known: known.stat().st_mtime)
    for old in others[:-DRAFTS]:
        if old != file:
            old.unlink()
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as opened:
            opened.write(text)


def place_command(command: list[str], file: str, line: int) -> list[str]:
    """Return the command line that opens a file at a line, in this editor's syntax."""
    name = Path(command[0]).name
    if name in ("code", "codium", "cursor"):
        return [*command, "--goto", f"{file}:{line}"]
    if name in ("hx", "helix", "subl", "zed", "micro"):
        return [*command, f"{file}:{line}"]
    return [*command, f"+{line}", file]


async def open_place(app: AppHost, file: str, line: int) -> None:
    """Open a file of this machine at a line; return when the editor has exited.

    Raises:
        EditorError: the file is not here, there is no editor, or it failed.
    """
    if not os.path.isabs(file) or not await asyncio.to_thread(os.path.isfile, file):
        todo = "The proxy may run on another machine: open it there"
        raise EditorError("this file is not here", file, todo)
    command = editor_of()
    try:
        code = await _run(app, place_command(command, file, max(1, line)))
    except OSError as error:
        raise EditorError(f"{command[0]}: {error.strerror or error}", todo="Set EDITOR") from error
    if code:
        raise EditorError(f"{command[0]} ended with {code}")


@contextlib.contextmanager
def _suspended(app: AppHost) -> Iterator[None]:
    """Suspend the console; resume it even after an exception.

    Textual's own `suspend` does not resume after an exception: input and painting stop.

    Raises:
        SuspendNotSupported: the terminal cannot be suspended.
    """
    suspended = app.suspend()
    suspended.__enter__()
    try:
        yield
    finally:
        suspended.__exit__(None, None, None)


async def run_program(app: AppHost, command: Sequence[str], notice: str = "") -> int:
    """Run a program on the terminal and return its exit code. The event loop runs on.

    Args:
        app: The console, which is suspended meanwhile.
        command: The program and its arguments.
        notice: A line on the terminal until the program paints; empty for none.

    Raises:
        SuspendNotSupported: the terminal cannot be suspended.
        OSError: the program cannot be started.
    """
    with _suspended(app), app.batch_update():
        if notice:
            sys.stdout.write(f"{notice}\n")
            sys.stdout.flush()
        child = await asyncio.create_subprocess_exec(*command)
        try:
            return await child.wait()
        finally:
            if child.returncode is None:  # the console ends while the program is open
                with contextlib.suppress(ProcessLookupError):
                    child.terminate()
                await child.wait()


async def _run(app: AppHost, command: list[str]) -> int:
    try:
        return await run_program(app, command)
    except SuspendNotSupported as error:
        raise EditorError("no editor can run in this terminal") from error
