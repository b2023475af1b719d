"""A language model as a judge of answers: a part that waits for an endpoint.

A judge that cannot say abstains with its cause; no score is ever made up.
"""

import asyncio
import functools
import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from ajet_swarm.common.tasks import Tasks
from proxy.rewards.judge.breaker import Breaker
from proxy.rewards.judge.budget import JUDGE_BUDGETS, JudgeBudgets, SpendCounter
from proxy.rewards.judge.cache import Cache
from proxy.rewards.judge.http import JudgeFault, Wire
from proxy.rewards.judge.modes import Sitting
from proxy.rewards.judge.prompt import winner_schema
from proxy.rewards.judge.question import Asker, overspent
from proxy.rewards.judge.settings import OWN, Options, address, find_key, is_near
from proxy.rewards.part import PartAbstained, PartEnvironment, PartInput, PartValue
from proxy.rewards.source import Abstention, HealthNotifier, Listener, SourceHealth

log = logging.getLogger(__name__)

CACHE = "judge.db"
"""The verdicts of all judges of a home."""
_WORD = [{"role": "user", "content": 'Reply with {"reason": "", "winner": "tie"}'}]
_MADE_OF = ("prompt.py", "reply.py", "modes.py")
LOOK_EVERY = 30.0
"""Seconds between two looks at an endpoint that was no good when it was last looked at."""


class JudgeProbe(msgspec.Struct, frozen=True):
    """What a dry look at a judge found."""

    ok: bool
    said: str
    """One line: what is there, or what is wrong."""
    todo: str = ""
    url: str = ""
    model: str = ""
    field: str = ""
    """The setting to mend, where it is one."""
    again: bool = False
    """It may be well later by itself."""


class Judge:
    """The part of kind `judge`; see `proxy.rewards.part.SlowPart`.

    Args:
        options: Its settings.
        desk: What it shares with the other judges of the process.
    """

    learns_version = True

    def __init__(self, options: Options, desk: JudgeBudgets = JUDGE_BUDGETS) -> None:
        self.options = options
        self.files: tuple[Path, ...] = tuple(
            one for one in (options.rubric, options.key_file) if one is not None
        )
        self._desk = desk
        self._around = PartEnvironment()
        self._tasks = Tasks(f"judge {options.name}")
        self._breaker = Breaker(options.breaker_after, options.breaker_seconds, self._refresh)
        self._cache: Cache | None = None
        self._wire: Wire | None = None
        self._asker: Asker | None = None
        self._model = options.model or ""
        self._opening = asyncio.Lock()
        self._reaching = asyncio.Lock()
        self._proven = False
        self._trouble: JudgeProbe | None = None
        """What the last look found wrong; None while nothing is."""
        self._told = ""
        """The trouble that its counts name."""
        self._board = HealthNotifier(SourceHealth(True, None, self._version()))

    @property
    def proven(self) -> bool:
        """Whether a look or its work has shown that it can be asked."""
        return self._proven

    @property
    def faulty_setting(self) -> str:
        """The setting that is wrong; empty for none."""
        return self._trouble.field if self._trouble is not None else ""

    def place(self, around: PartEnvironment) -> None:
        """Where it keeps verdicts, who hears of its counts, and how long a group may take."""
        self._around = around
        if self.options.group_seconds > around.seconds:
            self.options = msgspec.structs.replace(self.options, group_seconds=around.seconds)

    async def start(self) -> None:
        """Say at once what is wrong with the key, and look at the endpoint meanwhile."""
        if (fault := await asyncio.to_thread(self._faulty)) is not None:
            self._take(fault)
        self._tasks.spawn(self._look(), "look")

    async def close(self) -> None:
        """Close connections and cache; calls under way are given up by those who wait for them."""
        await self._tasks.close()
        tally = self._desk.tally(self.options.name, self._around.publish)
        if self._told and tally.now.trouble == self._told:  # of its address, not of its successor's
            tally.change(trouble="")
        tally.flush()
        if self._wire is not None:
            await self._wire.close()
        if self._cache is not None:
            await self._cache.close()

    def health(self) -> SourceHealth:
        """Whether it can be asked; the version names rubric and model."""
        return self._board.now

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` of every change; returns what takes it away."""
        return self._board.add(listener)

    async def score(self, group: PartInput) -> list[PartValue]:
        """The judge's value of each answer.

        Raises:
            PartAbstained: the judge did not say, or not what was asked for.
        """
        tally = self._tally()
        try:
            values = await self._values(group)
        except PartAbstained:
            tally.add(groups=1, failures=1)
            self._refresh()
            raise
        tally.add(groups=1)
        return values

    async def _values(self, group: PartInput) -> list[PartValue]:
        if not group.context.answers:
            raise PartAbstained("the group has no answers to judge")
        try:
            asker, wire = await self._open()
        except JudgeFault as fault:
            raise PartAbstained(f"the judge cannot be asked: {fault.text}") from None
        source = (wire.url, self._model)
        sitting = Sitting(self.options, source, asker, self._tally, group.context)
        return await sitting.values()

    async def probe(self) -> JudgeProbe:
        """Look whether the judge could be asked now: key, address, model.

        It reads the list of models and, when that does not name the model, asks for one word.
        """
        if (fault := await asyncio.to_thread(self._faulty)) is not None:
            return fault
        where = self._where()
        try:
            wire = await self._reach()
            listed = await wire.models()
            model = self._model or (listed[0] if listed else "")
            if not model:
                return JudgeProbe(False, "it lists no model", "Name one with `model`", where)
            if listed is None or model not in listed:
                await wire.ask(model, _WORD, winner_schema(), "probe")
        except JudgeFault as failure:
            said, todo = (
                f"the judge at {where} fails: {failure.text}",
                todo_of(failure, self.options),
            )
            return JudgeProbe(False, said, todo, where, self._model, again=failure.again)
        return JudgeProbe(True, f"{model} at {where}", "", where, model)

    async def _look(self) -> None:
        """Look at the endpoint until it is well, or has shown so by its work."""
        while True:
            found = await self.probe()
            if found.ok:
                self._model = self._model or found.model
            self._take(None if found.ok else found)
            if found.ok or await asyncio.to_thread(self._faulty) is not None:
                return
            await asyncio.sleep(LOOK_EVERY)
            if self._trouble is None:
                return

    def _faulty(self) -> JudgeProbe | None:
        """What is wrong before anything is asked."""
        if self.options.url == OWN:
            if self._desk.own is None:
                return JudgeProbe(
                    False,
                    "`url: own` needs a server that can be asked directly, and there is none",
                    "Give the url of the server, or start in observe mode (upstream.url)",
                    field="url",
                )
            return None
        key = find_key(self.options.key_env, self.options.key_file)
        field = "key_env" if self.options.key_env is not None else "key_file"
        where = self._where()
        return JudgeProbe(False, key.fault, key.todo, where, field=field) if key.fault else None

    def _where(self) -> str:
        if self.options.url != OWN:
            return self.options.url
        return address(self._desk.own.url) if self._desk.own is not None else OWN

    async def _reach(self) -> Wire:
        async with self._reaching:
            if self._wire is None:
                self._wire = await asyncio.to_thread(self._new_wire)  # it reads certificates
            return self._wire

    def _new_wire(self) -> Wire:
        own = self._desk.own if self.options.url == OWN else None
        if own is not None:
            key = own.key
            self._model = self._model or own.model
        else:
            key = find_key(self.options.key_env, self.options.key_file).value
        return Wire(self.options, self._where(), key, self._sent)

    async def _open(self) -> tuple[Asker, Wire]:
        """What asks, made when it is first needed.

        Raises:
            JudgeFault: the model is not known, and the endpoint does not list any.
            PartAbstained: the key is no good.
        """
        async with self._opening:
            if self._asker is not None and self._wire is not None:
                return self._asker, self._wire
            if (fault := await asyncio.to_thread(self._faulty)) is not None:
                raise PartAbstained(f"{fault.said}. {fault.todo}")
            wire = await self._reach()
            if not self._model:
                listed = await wire.models()
                if not listed:
                    raise JudgeFault("it lists no model: name one with `model`", again=False)
                self._model = listed[0]
                self._refresh()
            if self.options.cache and self._around.home is not None:
                self._cache = Cache(self._around.home / CACHE)
            self._asker = Asker(
                self.options,
                wire,
                self._model,
                self._breaker,
                self._cache,
                self._tally,
                self._worked,
            )
            return self._asker, wire

    def _worked(self) -> None:
        if self._trouble is not None or not self._proven:
            self._take(None)

    def _sent(self) -> None:
        self._tally().add(calls=1)

    def _tally(self) -> SpendCounter:
        options = self.options
        tally = self._desk.tally(options.name, self._around.publish)
        if tally.now.model != self._model or tally.now.mode != options.mode:
            tally.change(
                model=self._model,
                mode=options.mode,
                priced=options.priced,
                limit=options.spend_limit or 0.0,
            )
        return tally

    def _take(self, trouble: JudgeProbe | None) -> None:
        self._trouble = trouble
        shown = trouble is None and not self._proven
        self._proven = self._proven or shown
        self._refresh()
        if shown:
            self._board.tell()

    def _refresh(self) -> None:
        """Work out health and version anew, and tell who wants to know."""
        said, todo = self._breaker.trouble, "What is not in its cache has no reward meanwhile"
        passing = bool(said)
        if not said and self._trouble is not None:
            said, todo = self._trouble.said, self._trouble.todo
            passing = self._trouble.again
        tally = self._tally()
        if spent := overspent(self.options, tally):
            said, todo, passing = (
                spent,
                "Raise spend_limit, or restart the proxy, which counts from 0",
                True,
            )
        self._told = said
        if tally.now.trouble != said:
            tally.change(trouble=said)
        if not said:
            self._board.post(SourceHealth(True, None, self._version()))
            return
        error = Abstention(self.options.name, f"{said}. {todo}" if todo else said)
        version = self._version() if passing else ""
        level = "warning" if passing and not self._proven else "error"
        health = SourceHealth(False, error, version, level)
        if health != self._board.now:
            log.warning("judge %s: %s", self.options.name, said)
        self._board.post(health)

    def _version(self) -> str:
        """Hash of what determines its verdicts besides settings and code."""
        what = f"{self.options.url}\n{self._model}\n{self.options.rubric_text}\n{_code()}"
        return hashlib.sha256(what.encode()).hexdigest()[:12]


@functools.cache
def _code() -> str:
    """Hash of the files that make prompts and read replies."""
    total = hashlib.sha256()
    for name in _MADE_OF:
        total.update(Path(__file__).with_name(name).read_bytes())
    return total.hexdigest()


def todo_of(fault: JudgeFault, options: Options) -> str:
    """What to do about a judge that could not be asked."""
    if fault.status in (401, 403):
        named = options.key_env or options.key_file
        if named is None and not is_near(options.url):
            return "It wants a key: name the variable that holds it with key_env"
        return f"See that the key is right ({named})" if named else "Name its key with key_env"
    if fault.status in (400, 404):
        return "See that url and model are right"
    return "See that it runs and that url is right"
