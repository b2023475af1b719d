"""A program as a target: started for each question and always terminated afterwards."""

import asyncio
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ajet_swarm.common.text import one_line
from mock.targets.answers import NoAnswer, read_output
from mock.targets.base import OUTPUT_CAP, ModelEndpoint
from mock.targets.process import ProcessResult, ProcessTarget, environment, run
from mock.targets.question import Question
from mock.targets.spec import CommandSpec
from mock.targets.templates import fill

_LINES = 4
"""Number of last lines of its errors and output to report on a failure."""
_LINE = 100
"""Characters of each such line."""
_PROMPT = re.compile(
    r"\bEOFError\b|EOF when reading|not a (tty|terminal)|no tty"
    r"|(password|passphrase|passcode|user ?name|login|api key|token|\by(es)?/no?\W?)"
    r"[^:?]{0,30}[:?]\s*$",
    re.IGNORECASE,
)


class CommandTarget(ProcessTarget):
    """The application's own command line.

    Each conversation has its own folder with the target's `files`; it is removed at the end of the
    conversation.
    """

    def __init__(self, spec: CommandSpec, endpoint: ModelEndpoint) -> None:
        super().__init__(spec, endpoint)
        self._spec = spec
        self._folders: dict[str, Path] = {}

    async def close(self) -> None:
        """Remove the folders of open conversations."""
        for session in list(self._folders):
            await self.end_conversation(session)

    async def end_conversation(self, session: str) -> None:
        if (folder := self._folders.pop(session, None)) is not None:
            await asyncio.to_thread(shutil.rmtree, folder, True)

    async def answer(self, question: Question) -> str:
        argv = self._spec.command if question.turn == 1 else self._spec.then
        if not argv:
            raise NoAnswer("it takes one question only: the file has no `then`")
        folder = await asyncio.to_thread(self._folder, question)
        values = self.values(question, folder=str(folder))
        result = await self._run(argv, values, folder)
        return await self._read(result, values, folder)

    def _folder(self, question: Question) -> Path:
        """Return the conversation's folder, created with its files on the first turn."""
        existing = self._folders.get(question.session)
        if existing is not None:
            return existing
        folder = Path(tempfile.mkdtemp(prefix="ajet-target-"))
        self._folders[question.session] = folder
        values = self.values(question, folder=str(folder))
        for name, text in self._spec.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(fill(text, values))
        return folder

    async def _run(
        self, argv: tuple[str, ...], values: Mapping[str, Any], folder: Path
    ) -> ProcessResult:
        spec = self._spec
        variables = self.variables(values, spec.set)
        works_in = Path(fill(spec.folder, values)).expanduser()  # noqa: ASYNC240 - it reads a variable
        return await run(
            [fill(word, values) for word in argv],
            env=environment({**variables, "PWD": str(works_in)}),
            folder=works_in,
            stdin=fill(spec.stdin, values).encode() if spec.stdin else None,
            limit=spec.timeout,
        )

    async def _read(self, ran: ProcessResult, values: Mapping[str, Any], folder: Path) -> str:
        if ran.code not in self._spec.codes:
            raise NoAnswer(f"{ran.fate}{self._failure_text(ran)}")
        reading = self._spec.answer
        try:
            data = ran.out
            if reading.file:
                path = folder / fill(reading.file, values)
                data = await asyncio.to_thread(_contents, path)
            return reading.find(read_output(data))
        except NoAnswer as error:
            noise = self._tail(ran.err)
            printed = f"; it printed: {noise}" if noise else ""
            raise NoAnswer(f"{error}{printed}{self._prompt_hint(ran)}") from error

    def _failure_text(self, ran: ProcessResult) -> str:
        """Return the last lines of a program that failed, errors first."""
        err, out = self._tail(ran.err), self._tail(ran.out)
        text = f": {err or out}" if err or out else ""
        if err and out:
            text += f"; it printed: {out}"
        return text + self._prompt_hint(ran)

    def _tail(self, data: bytes) -> str:
        """Return the last lines of `data` as one line; secrets are removed before it is cut."""
        lines = [one_line(self.hide(line), _LINE) for line in _last_lines(data)]
        return " / ".join(lines)

    def _prompt_hint(self, ran: ProcessResult) -> str:
        """Return a hint when the program seems to have waited for input."""
        if not any(map(_PROMPT.search, [*_last_lines(ran.err), *_last_lines(ran.out)])):
            return ""
        if self._spec.stdin:
            return "; it waited for more input than `stdin` has"
        return "; it waited for input but has none"


def _contents(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(OUTPUT_CAP)
    except OSError as error:
        raise NoAnswer(f"its answer file cannot be read: {error.strerror}") from None


def _last_lines(data: bytes) -> list[str]:
    try:
        text = read_output(data)
    except NoAnswer:
        return []
    return [line.strip() for line in text.split("\n") if line.strip()][-_LINES:]
