"""A program as a target: started for each question, its output read, never left behind."""

import asyncio
import re
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from ajet_swarm.common.text import one_line
from mock.tally import Tally
from mock.targets.base import OUTPUT_CAP, Local, Setting
from mock.targets.openai import Answer, Question, Unreachable
from mock.targets.process import NotStarted, Ran, TooMuch, environment, run
from mock.targets.spec import CommandSpec
from mock.targets.templates import NoAnswer, fill, read_output

_LINES = 4
"""Last lines of its errors, and of its output, that are told when it fails."""
_LINE = 100
_MOST = 900
_PROMPT = re.compile(
    r"\bEOFError\b|EOF when reading|not a (tty|terminal)|no tty"
    r"|(password|passphrase|passcode|user ?name|login|api key|token|\by(es)?/no?\W?)"
    r"[^:?]{0,30}[:?]\s*$",
    re.IGNORECASE,
)


class Command(Local):
    """The application's own command line.

    Each conversation has a folder of its own, with the target's `files` in it; it is removed when
    the conversation is over.
    """

    def __init__(self, spec: CommandSpec, setting: Setting) -> None:
        super().__init__(spec, setting)
        self._spec = spec
        self._folders: dict[str, Path] = {}

    async def close(self) -> None:
        """Remove what is left of conversations."""
        for session in list(self._folders):
            await self.over(session)

    async def over(self, session: str) -> None:
        """Remove the conversation's folder."""
        if (folder := self._folders.pop(session, None)) is not None:
            await asyncio.to_thread(shutil.rmtree, folder, True)

    async def ask(
        self,
        question: Question,
        rest: Callable[[float], Awaitable[bool]],
        patience: float,
        tally: Tally,
    ) -> Answer | None:
        """See `Target.ask`; a program that failed is not started again for the same question."""
        spec, began = self._spec, time.monotonic()
        self.lost_words(question)
        argv = spec.command if question.turn == 1 else spec.then
        if not argv:
            return self.failed("it takes one question only: the file has no `then`", began)
        try:
            folder = await asyncio.to_thread(self._folder, question)
            values = self.values(question, folder=str(folder))
            ran = await self._run(argv, values, folder)
            return await self._read(ran, values, folder, began)
        except NotStarted as error:
            if error.always:
                raise Unreachable(str(error), str(spec.path), "See its `command`") from error
            return self.failed(str(error), began)
        except TooMuch:
            return self.failed(f"it printed more than {OUTPUT_CAP >> 20} MB: killed", began)
        except TimeoutError:
            return self.failed(f"no answer within {spec.timeout:g} s: killed", began)
        except OSError as error:
            raise Unreachable(
                f"its folder cannot be used: {error.strerror or error}", str(spec.path)
            ) from error

    def _folder(self, question: Question) -> Path:
        """The conversation's folder, with its files; made on the first turn."""
        known = self._folders.get(question.session)
        if known is not None:
            return known
        folder = Path(tempfile.mkdtemp(prefix="ajet-target-"))
        self._folders[question.session] = folder
        values = self.values(question, folder=str(folder))
        for name, text in self._spec.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(fill(text, values))
        return folder

    async def _run(self, argv: tuple[str, ...], values: Mapping[str, Any], folder: Path) -> Ran:
        spec = self._spec
        own = {name: self._env[name] for name in spec.env}
        given = {name: fill(text, values) for name, text in spec.set.items()}
        works_in = _place(fill(spec.folder, values))
        return await run(
            [fill(word, values) for word in argv],
            env=environment({**own, **given, "PWD": str(works_in)}),
            folder=works_in,
            stdin=fill(spec.stdin, values).encode() if spec.stdin else None,
            limit=spec.timeout,
        )

    async def _read(
        self, ran: Ran, values: Mapping[str, Any], folder: Path, began: float
    ) -> Answer:
        if ran.code not in self._spec.codes:
            return self.failed(f"{ran.fate}{self._said(ran)}", began, _MOST)
        reading = self._spec.answer
        try:
            data = ran.out
            if reading.file:
                path = folder / fill(reading.file, values)
                data = await asyncio.to_thread(_contents, path)
            text = reading.find(read_output(data))
        except NoAnswer as error:
            noise = self._last_words(ran.err)
            said = f"; it said: {noise}" if noise else ""
            return self.failed(f"{error}{said}{self._asked(ran)}", began, _MOST)
        return Answer(text=text, seconds=time.monotonic() - began)

    def _said(self, ran: Ran) -> str:
        """The last words of a program that failed, errors first."""
        err, out = self._last_words(ran.err), self._last_words(ran.out)
        told = f": {err or out}" if err or out else ""
        if err and out:
            told += f"; it printed: {out}"
        return told + self._asked(ran)

    def _last_words(self, data: bytes) -> str:
        """Its last lines as one; secrets are hidden before anything is cut."""
        lines = [one_line(self.hide(line), _LINE) for line in _last_lines(data)]
        return " / ".join(lines)

    def _asked(self, ran: Ran) -> str:
        """A hint when it seems to have waited for somebody to type."""
        if not any(map(_PROMPT.search, [*_last_lines(ran.err), *_last_lines(ran.out)])):
            return ""
        if self._spec.stdin:
            return "; it asked for more on its input than `stdin` gives"
        return "; it asked on its input; there is none"


def _place(text: str) -> Path:
    return Path(text).expanduser()


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
