"""The part of kind `judge`: its connection to the endpoint, its health and its version."""

import asyncio
import functools
import hashlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.common.tasks import Tasks
from proxy.rewards.judge.breaker import Breaker
from proxy.rewards.judge.cache import Cache
from proxy.rewards.judge.endpoint import JudgeClient, JudgeFault
from proxy.rewards.judge.modes import GroupJudging
from proxy.rewards.judge.prompt import winner_schema
from proxy.rewards.judge.question import QuestionRunner
from proxy.rewards.judge.settings import (
    OWN,
    SETTINGS,
    Options,
    address,
    find_key,
    is_local,
    options,
)
from proxy.rewards.judge.spend import JUDGE_BUDGETS, JudgeBudgets
from proxy.rewards.part import (
    PartAbstained,
    PartEnvironment,
    PartInput,
    PartKind,
    PartValue,
)
from proxy.rewards.source import Abstention, HealthNotifier, Listener, SourceHealth

log = logging.getLogger(__name__)

CACHE = "judge.db"
"""Database file with the verdicts of all judges of a home."""
_TEST_PROMPT = [{"role": "user", "content": 'Reply with {"reason": "", "winner": "tie"}'}]
_VERSIONED_FILES = ("prompt.py", "reply.py", "modes.py")
PROBE_EVERY = 30.0
"""Seconds between two probes of an endpoint that failed the last one."""


class JudgeProbe(msgspec.Struct, frozen=True):
    """Result of probing a judge without judging anything."""

    ok: bool
    summary: str
    """One line: the model and address, or the fault."""
    todo: str = ""
    url: str = ""
    model: str = ""
    field: str = ""
    """The setting that causes the fault, if one does."""
    again: bool = False
    """Whether the fault may pass by itself."""


class Judge:
    """The part of kind `judge`; see `proxy.rewards.part.SlowPart`.

    Args:
        options: Its settings.
        budgets: The counts of all judges of the process.
    """

    learns_version = True

    def __init__(self, options: Options, budgets: JudgeBudgets = JUDGE_BUDGETS) -> None:
        self.options = options
        self.files: tuple[Path, ...] = tuple(
            file for file in (options.rubric, options.key_file) if file is not None
        )
        self.proven = False
        """Whether a probe or a verdict has shown that the judge works."""
        self.judges_one_by_one = options.mode == "pointwise"
        """Whether the value of an answer is independent of the other answers."""
        self._budgets = budgets
        self._environment = PartEnvironment()
        self._spend = budgets.counter(options.name, None)
        self._tasks = Tasks(f"judge {options.name}")
        self._breaker = Breaker(options.breaker_after, options.breaker_seconds, self._refresh)
        self._cache: Cache | None = None
        self._client: JudgeClient | None = None
        self._runner: QuestionRunner | None = None
        self._model = options.model or ""
        self._lock = asyncio.Lock()
        self._trouble: JudgeProbe | None = None
        """The fault that the last probe found; None while there is none."""
        self._published_trouble = ""
        """The fault that is published with its counts."""
        self._notifier = HealthNotifier(SourceHealth(True, None, self._version()))

    @property
    def faulty_setting(self) -> str:
        """The setting that causes the fault; empty for none."""
        return self._trouble.field if self._trouble is not None else ""

    def place(self, environment: PartEnvironment) -> None:
        """Set the folder of the cache, the receiver of counts, and the time limit of a group."""
        self._environment = environment
        self._spend = self._budgets.counter(self.options.name, environment.publish)
        if self.options.group_seconds > environment.seconds:
            self.options = msgspec.structs.replace(self.options, group_seconds=environment.seconds)

    async def start(self) -> None:
        """Report a fault of the key at once, and begin to probe the endpoint."""
        if (fault := await self._settings_fault()) is not None:
            self._set_trouble(fault)
        self._tasks.spawn(self._probe_until_ok(), "probe")

    async def close(self) -> None:
        """Close connections and cache; the callers of calls in progress give them up."""
        await self._tasks.close()
        if self._published_trouble and self._spend.now.trouble == self._published_trouble:
            self._spend.change(trouble="")  # the fault concerns this part, not its successor
        self._spend.flush()
        if self._client is not None:
            await self._client.close()
        if self._cache is not None:
            await self._cache.close()

    def health(self) -> SourceHealth:
        """Return whether the judge can be used; the version covers rubric and model."""
        return self._notifier.current

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` at every change; return a function that removes it."""
        return self._notifier.add(listener)

    async def score(self, group: PartInput) -> list[PartValue]:
        """Return the judge's value of each answer.

        Raises:
            PartAbstained: the judge gave no verdict, or not in the requested form.
        """
        try:
            values = await self._values(group)
        except PartAbstained:
            self._spend.add(groups=1, failures=1)
            self._refresh()
            raise
        self._spend.add(groups=1)
        return values

    async def _values(self, group: PartInput) -> list[PartValue]:
        if not group.context.answers:
            raise PartAbstained("the group has no answers to judge")
        try:
            runner = await self._open()
        except JudgeFault as fault:
            raise PartAbstained(f"the judge cannot be used: {fault.text}") from None
        return await GroupJudging(self.options, runner, self._spend, group.context).values()

    async def probe(self) -> JudgeProbe:
        """Check whether the judge can be used now: key, address, model.

        Request the list of models and, if it does not contain the model, a one-word completion.
        """
        if (fault := await self._settings_fault()) is not None:
            return fault
        where = self._endpoint()
        try:
            async with self._lock:
                client = await self._connect()
            listed = await client.models()
            model = self._model or (listed[0] if listed else "")
            if not model:
                return JudgeProbe(False, "it lists no model", "Name one with `model`", where)
            if listed is None or model not in listed:
                await client.ask(model, _TEST_PROMPT, winner_schema(), "probe")
        except JudgeFault as failure:
            summary = f"the judge at {where} fails: {failure.text}"
            todo = todo_of(failure, self.options)
            return JudgeProbe(False, summary, todo, where, self._model, again=failure.again)
        return JudgeProbe(True, f"{model} at {where}", "", where, model)

    async def _probe_until_ok(self) -> None:
        """Probe the endpoint until it works, or a verdict has shown that it does."""
        while True:
            result = await self.probe()
            if result.ok:
                self._model = self._model or result.model
            self._set_trouble(None if result.ok else result)
            if result.ok or await self._settings_fault() is not None:
                return
            await asyncio.sleep(PROBE_EVERY)
            if self._trouble is None:
                return

    async def _settings_fault(self) -> JudgeProbe | None:
        """Return the fault of a setting that shows without any request."""
        options = self.options
        if options.url == OWN:
            if self._environment.own is not None:
                return None
            return JudgeProbe(
                False,
                "`url: own` needs a server that can be asked directly, and there is none",
                "Give the url of the server, or start in observe mode (upstream.url)",
                field="url",
            )
        key = await asyncio.to_thread(find_key, options.key_env, options.key_file)
        if not key.fault:
            return None
        field = "key_env" if options.key_env is not None else "key_file"
        return JudgeProbe(False, key.fault, key.todo, options.url, field=field)

    def _endpoint(self) -> str:
        if self.options.url != OWN:
            return self.options.url
        own = self._environment.own
        return OWN if own is None else address(own.url)

    async def _connect(self) -> JudgeClient:
        """Return the connection; the lock is held."""
        if self._client is None:
            # in a thread: it reads certificates and the key
            self._client = await asyncio.to_thread(self._new_client)
        return self._client

    def _new_client(self) -> JudgeClient:
        own = self._environment.own if self.options.url == OWN else None
        if own is not None:
            key = own.key
            self._model = self._model or own.model
        else:
            key = find_key(self.options.key_env, self.options.key_file).value
        clock = self._environment.runtime.clock
        return JudgeClient(self.options, self._endpoint(), key, self._count_call, clock)

    async def _open(self) -> QuestionRunner:
        """Return the object that asks questions; create it on first use.

        Raises:
            JudgeFault: no model is set, and the endpoint lists none.
            PartAbstained: the key is unusable.
        """
        async with self._lock:
            if self._runner is not None:
                return self._runner
            if (fault := await self._settings_fault()) is not None:
                raise PartAbstained(f"{fault.summary}. {fault.todo}")
            client = await self._connect()
            if not self._model:
                listed = await client.models()
                if not listed:
                    raise JudgeFault("it lists no model: name one with `model`", again=False)
                self._model = listed[0]
                self._refresh()
            if self.options.cache and self._environment.home is not None:
                self._cache = Cache(self._environment.home / CACHE)
            self._describe()
            self._runner = QuestionRunner(
                self.options,
                client,
                self._model,
                self._breaker,
                self._cache,
                self._spend,
                self._on_success,
                self._environment.runtime.chance,
            )
            return self._runner

    def _on_success(self) -> None:
        if self._trouble is not None or not self.proven:
            self._set_trouble(None)

    def _count_call(self) -> None:
        self._spend.add(calls=1)

    def _describe(self) -> None:
        """Set what the counts say about this judge besides numbers."""
        options = self.options
        self._spend.change(
            model=self._model,
            mode=options.mode,
            priced=options.priced,
            limit=options.spend_limit or 0.0,
        )

    def _set_trouble(self, trouble: JudgeProbe | None) -> None:
        self._trouble = trouble
        newly_proven = trouble is None and not self.proven
        self.proven = self.proven or newly_proven
        self._refresh()
        if newly_proven:
            self._notifier.notify()

    def _refresh(self) -> None:
        """Compute health and version again, and publish changes."""
        trouble, todo = self._breaker.trouble, "Until then, only cached verdicts give rewards"
        passing = bool(trouble)
        if not trouble and self._trouble is not None:
            trouble, todo = self._trouble.summary, self._trouble.todo
            passing = self._trouble.again
        if spent := self._spend.over(self.options.spend_limit):
            trouble, passing = spent, True
            todo = "Raise spend_limit, or restart the proxy, which counts from 0"
        self._published_trouble = trouble
        self._describe()
        self._spend.change(trouble=trouble)
        if not trouble:
            self._notifier.update(SourceHealth(True, None, self._version()))
            return
        error = Abstention(self.options.name, f"{trouble}. {todo}" if todo else trouble)
        version = self._version() if passing else ""
        level = "warning" if passing and not self.proven else "error"
        health = SourceHealth(False, error, version, level)
        if health != self._notifier.current:
            log.warning("judge %s: %s", self.options.name, trouble)
        self._notifier.update(health)

    def _version(self) -> str:
        """Return the hash of what determines its verdicts besides settings and code."""
        what = f"{self.options.url}\n{self._model}\n{self.options.rubric_text}\n{_code_hash()}"
        return hashlib.sha256(what.encode()).hexdigest()[:12]


@functools.cache
def _code_hash() -> str:
    """Return the hash of the files that build prompts and read replies."""
    total = hashlib.sha256()
    for name in _VERSIONED_FILES:
        total.update(Path(__file__).with_name(name).read_bytes())
    return total.hexdigest()


def todo_of(fault: JudgeFault, options: Options) -> str:
    """Return what the operator can do about a judge that could not be used."""
    if fault.status in (401, 403):
        named = options.key_env or options.key_file
        if named is None and not is_local(options.url):
            return "It needs a key: name the variable that holds it with key_env"
        return f"Check that the key is right ({named})" if named else "Name its key with key_env"
    if fault.status in (400, 404):
        return "Check that url and model are right"
    return "Check that it runs and that url is right"


def make(name: str, settings: Mapping[str, Any], where: Path) -> Judge:
    """Return the part.

    Raises:
        SettingError: a setting is invalid, or the rubric cannot be read.
    """
    return Judge(options(name, settings))


JUDGE = PartKind(
    make,
    "Score of a language model by a rubric",
    SETTINGS,
    slow=True,
    relative="a judge costs calls, and may compare the answers of a group",
)
