"""All settings in one typed model: file < environment < flags.

The file is `config.yaml` in the home. A variable `AJET_CONSOLE__PROXY__PORT=8001` sets
`proxy.port`; `AJET_SWARM_URL` sets `swarm_url`. The error of an invalid value names its file and
line, its key and the valid values.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from ajet_swarm.common.text import did_you_mean, one_line
from ajet_swarm.common.urls import server_root, web_address
from core.settings.file import SettingsError, Source, read_settings, with_booleans
from core.settings.yaml_file import explained, path_text

PREFIX = "AJET_CONSOLE__"

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
SHIPPED_MODEL, SMOLLM2 = "tiny", "smollm2"
"""The model of the numpy backend; short name of SmolLM2-135M, which the torch backend trains."""

MAX_TAGS = 9
"""Maximum number of tags: each has a digit key."""
_LOGIN = re.compile(r"([^/]*://)?[^/]*@")
"""Beginning of a URL with a user or a password before the host."""


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the sections; unknown keys are refused."""


class ProxySettings(_Section, frozen=True):
    """The fake vLLM."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 8000
    """0 takes any free port."""
    api_key: str = ""
    """Required on any host other than loopback; empty accepts any key on loopback."""
    api_key_file: str = ""
    """File that contains only the key; has precedence over `api_key`."""
    served_model_name: str = ""
    """When set, requests for any other model are answered 404, as vLLM does."""
    repeats: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Candidates of a request; 0 uses the server's number. Never fewer than the server's."""
    answer_budget: Seconds = 90.0
    """Seconds until a request without streaming is answered with the best candidate so far."""
    answer_limit: Seconds = 280.0
    """Seconds until it gets an error if none has answered; Node's `fetch` gives up after 300."""
    stream_budget: Seconds = 600.0
    """Maximum seconds that a stream is kept open."""
    watch_only: bool = False
    """Observe only: claim no episodes, start no engine, serve no requests."""
    keepalive: Seconds = 10.0
    """Seconds between two no-op events on a waiting stream."""
    answer: Literal["best", "live"] = "best"
    """Answer of the user: the best candidate once chosen, or the first one as it is generated."""
    straggler_after: Annotated[float, msgspec.Meta(ge=0)] = 10.0
    """Seconds that the last candidate gets after all others answered; 0 sets no limit."""
    straggler_limit: Annotated[float, msgspec.Meta(ge=0)] = 20.0
    """Seconds after which a candidate is late regardless of the others, never less than twice the
    usual time of an answer; 0 sets no limit. A group without any answer is tried again once."""
    straggler: Literal["answer", "cut", "replace"] = "answer"
    """Late candidates in ROLLING: `answer` the user first, `cut` them, as in ROLLING_POST, or
    `replace` each once by a new one, then `answer`."""
    abort_dead_clients: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds without a call until others' episodes in ROLLING_POST are aborted; 0 for never."""
    queue_limit: Count = 256
    """Requests that may wait for a claim; further ones are answered 503."""
    max_groups: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Maximum groups per server that claim or hold episodes; 0 is what its pool allows."""
    session_cap: Annotated[int, msgspec.Meta(ge=0)] = 32
    """Open requests of one session; further ones are answered 429. 0 sets no limit."""
    session_calls: Annotated[int, msgspec.Meta(ge=0)] = 120
    """Requests of one session per minute; further ones are answered 429. 0 sets no limit."""
    replay: Literal["off", "marked", "owed", "always"] = "owed"
    """Which requests that are repeated within 30 s get the previous answer; see
    docs/guide/serving.md."""
    helpers: bool = True
    """Recognise helper calls (titles, summaries, follow-ups): one answer, not trained on."""
    max_body_mb: Count = 32
    """Maximum size of a request body in MiB."""
    max_bodies_mb: Count = 256
    """Total MiB of the request bodies in memory, at least `max_body_mb`; beyond it 503."""
    header_timeout: Seconds = 20.0
    """Seconds a client may take to send the headers of a request."""
    body_timeout: Seconds = 30.0
    """Maximum seconds between two parts of a request's body."""
    max_connections: Count = 4096
    """Maximum number of open connections; further ones are answered 503."""
    cors_origins: str | tuple[str, ...] = ()
    """Origins whose web pages may use the fake vLLM, as `https://chat.example`; `*` is any."""
    tls_cert: str = ""
    """File with the certificate chain (PEM); together with `tls_key` it enables TLS."""
    tls_key: str = ""
    """File with the certificate's private key (PEM)."""
    reasoning_field: Literal["reasoning", "reasoning_content"] = "reasoning"
    """Name of the reasoning field in a chat answer; vLLM before 0.12 uses `reasoning_content`."""


class HttpSettings(_Section, frozen=True):
    """Requests to the fake vLLM."""

    allowed_hosts: str | tuple[str, ...] = ()
    """Further names under which it may be addressed while it listens on loopback without a key;
    `*` is any."""


class ServerSettings(_Section, frozen=True):
    """One server of `swarm_url`; `swarm` is the name of the only one."""

    vision: bool = False
    """Whether its model accepts images; if not, a request with an image is answered 400."""


class TelemetrySettings(_Section, frozen=True):
    """What leaves the proxy for other programs; see docs/guide/telemetry.md. Nothing by default."""

    enabled: bool = False
    """Send spans and evaluation results to an OpenTelemetry collector (OTLP over HTTP); needs the
    extra `otel`."""
    endpoint: str = ""
    """Base URL of the collector, as `http://127.0.0.1:4318`; empty uses the environment variable
    OTEL_EXPORTER_OTLP_ENDPOINT, or that address."""
    sample: Share = 0.05
    """Share of the requests that are sent. A request with a W3C trace context is sent if its
    client samples it."""
    content: bool = False
    """Send prompts, answers and the reasons of rewards as well."""
    sinks: dict[str, dict[str, Any] | None] = msgspec.field(default_factory=dict)
    """Name of a sink -> its options: `tensorboard: {}` writes event files; others are plug-ins."""


class RatingSettings(_Section, frozen=True):
    """Rating by hand."""

    mode: Literal["off", "answer_first", "hold"] = "off"
    """Whether groups wait for your vote, and whether their users do; see docs/guide/rating.md."""
    window: Annotated[float, msgspec.Meta(ge=0)] = 4.0
    """Seconds for which a vote is held, so that it can be undone; in mode off, seconds in which a
    scored group can be rated while a console is connected."""
    confirm: Literal["none", "enter"] = "none"
    """Whether a digit on Rate votes at once, or Enter sends what was typed."""
    fallback: Literal["accept", "abort"] = "accept"
    """A group that is not rated in time gets its automatic reward, or is aborted."""
    mock_waits: bool = True
    """Whether the mock user waits for your votes. If not, its rows are treated as users' requests:
    while one waits, the oldest unrated group gets the fallback."""
    discard_timeout: Seconds = 240.0
    """Seconds after which the server reclaims an idle episode in mode off."""
    discard_timeout_rating: Seconds = 600.0
    """Seconds after which the server reclaims an idle episode in the rating modes."""
    score_low: float = 0.0
    """Lowest possible reward, which is that of the lowest score."""
    score_high: float = 1.0
    """Highest possible reward; the verdicts of the probe set need the range."""
    tags: str | tuple[str, ...] = ("wrong", "off-topic", "verbose", "unsafe", "style")
    """Reasons for a vote to choose from, at most nine; as text, separated by commas."""
    guidelines: str = ""
    """Markdown file with the rating guidelines; each vote records their version."""
    repeats: Share = 0.05
    """Share of your votes whose group is shown again later, blind; the second vote is not sent."""
    overlap: Annotated[int, msgspec.Meta(ge=1, le=4)] = 1
    """Number of different raters who rate each group; the rewards are the mean of their votes."""
    disagreements: Literal["send", "wait"] = "send"
    """A group whose raters disagree is sent with the mean of their votes, or waits until its clock
    ends for a decisive vote."""


class RewardSettings(_Section, frozen=True):
    """The automatic rewards."""

    hooks: str = ""
    """Folder with `on_compute_relative_reward.py`, which computes the whole reward; empty uses the
    reward model of `file`."""
    file: str = ""
    """File of the reward model: gates and weighted parts (docs/guide/rewards.md); empty uses
    `rewards.yaml` in the home or, without it, the built-in model."""
    time_limit: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds a hook may take for one group; 0 is the smaller of `proxy.answer_budget` and a third
    of the shorter `rating.discard_timeout`: 80 with the defaults."""
    short_group: Literal["send", "abort"] = "send"
    """A group with too few candidates is sent if it has at least two, or always aborted."""
    retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 2
    """New episodes to try instead of a failed candidate."""


class UpstreamSettings(_Section, frozen=True):
    """Observe mode: an OpenAI-compatible server instead of swarm servers; nothing is trained."""

    url: str = ""
    """`http://HOST:PORT`, or the base URL its clients use; empty for none."""
    key: str = ""
    """Its API key; `key_file` keeps it out of this file."""
    key_file: str = ""
    """File that contains only the key."""
    model: str = ""
    """Model to request; empty requests the first one it lists."""
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    """Temperature of all candidates; it replaces that of the request and drops its seed, so that
    the candidates differ. Null sends the request's own."""


class EngineSettings(_Section, frozen=True):
    """The embedded engine."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 10086
    """0 takes any free port."""
    backend: Literal["numpy", "torch"] = "numpy"
    """What computes: numpy for the shipped policy, torch for a model of any size on your own card
    (docs/guide/own-gpu.md)."""
    model: str = SHIPPED_MODEL
    """Model to train. numpy: `tiny`, the shipped policy. torch: a Hugging Face folder, a GGUF file,
    a model name, or `smollm2`, SmolLM2-135M, which is downloaded once; `tiny` leaves it to the
    job's `ajet.model.path`."""

    @property
    def torch_model(self) -> str:
        """Model of the torch backend; empty leaves it to the job."""
        return "" if self.model == SHIPPED_MODEL else self.model


class ProbeSettings(_Section, frozen=True):
    """The measurement of the policy on held-out prompts; see docs/guide/progress.md."""

    file: str = ""
    """JSONL file of the held-out prompts; empty uses the shipped ones for the embedded engine."""
    samples: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    """Answers for each prompt of a look; 0 takes 16 from a copy of the weights, as the embedded
    engine offers, and 8 by eval episodes, fewer after looks that weight syncs cut."""
    every: Count = 1
    """Policy updates between two looks, at least."""
    share: Share = 0.3
    """Maximum share of the time that looks take; commands are not limited. 0 takes no looks."""
    on_worse: Literal["alert", "pause", "rewind"] = "alert"
    """Reaction to a policy that is worse than the baseline. `pause` answers users without training;
    `rewind` also restores the best verified step, on the embedded engine only."""
    judges: bool = False
    """Whether looks may call judges: one that judges each answer by itself scores them, another
    compares them where it is the only part of the rewards. Each answer is at least one call."""


class JournalSettings(_Section, frozen=True):
    """Retention of the journal. Open groups and the newest 500 are never pruned."""

    keep_days: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Days a group is kept; 0 sets no limit. Groups that a person rated, marked or annotated are
    kept until `keep_bytes` requires their space."""
    keep_bytes: Annotated[int, msgspec.Meta(ge=0)] = 10_000_000_000
    """Maximum bytes; beyond it the oldest groups are deleted, rated ones last. 0 sets no limit."""


class MockSettings(_Section, frozen=True):
    """The mock user."""

    dataset: str = ""
    """File or folder; empty uses the questions shipped with the program."""


class ExportSettings(_Section, frozen=True):
    """Export of groups."""

    patterns: str | tuple[str, ...] = ()
    """Regular expressions to redact besides the built-in ones. Text is one expression."""

    @property
    def all_patterns(self) -> tuple[str, ...]:
        """The expressions."""
        return (
            tuple(filter(None, [self.patterns]))
            if isinstance(self.patterns, str)
            else self.patterns
        )


class ConsoleSettings(_Section, frozen=True):
    """The terminal console."""

    theme: Literal["dark", "light", "ansi"] = "dark"
    """Colours; `ansi` takes those of the terminal."""
    application: str = ""
    """Client whose settings `ajet-console setup` prints, a name of `ajet-console clients`."""
    keys: dict[str, str] = msgspec.field(default_factory=dict)
    """Action -> key, where it differs from the default: `group.abort: ctrl+d`."""


class Settings(_Section, frozen=True):
    """All settings."""

    swarm_url: str | dict[str, str] = "embedded"
    """`embedded`, the URL of an AgentJet server, or several as name: URL."""
    server: dict[str, ServerSettings] = msgspec.field(default_factory=dict, name="servers")
    """Server name -> its settings."""
    proxy: ProxySettings = msgspec.field(default_factory=ProxySettings)
    http: HttpSettings = msgspec.field(default_factory=HttpSettings)
    rating: RatingSettings = msgspec.field(default_factory=RatingSettings)
    rewards: RewardSettings = msgspec.field(default_factory=RewardSettings)
    upstream: UpstreamSettings = msgspec.field(default_factory=UpstreamSettings)
    engine: EngineSettings = msgspec.field(default_factory=EngineSettings)
    probe: ProbeSettings = msgspec.field(default_factory=ProbeSettings)
    journal: JournalSettings = msgspec.field(default_factory=JournalSettings)
    telemetry: TelemetrySettings = msgspec.field(default_factory=TelemetrySettings)
    mock: MockSettings = msgspec.field(default_factory=MockSettings)
    export: ExportSettings = msgspec.field(default_factory=ExportSettings)
    console: ConsoleSettings = msgspec.field(default_factory=ConsoleSettings)

    @property
    def reward_limit(self) -> float:
        """Time limit in seconds of one group's rewards.

        The default is at most a third of an episode's timeout. The rest is for the answers, and for
        a second attempt after a crash of the hooks' process.
        """
        timeout = min(self.rating.discard_timeout, self.rating.discard_timeout_rating)
        return self.rewards.time_limit or min(self.proxy.answer_budget, timeout / 3)

    def servers(self) -> dict[str, str]:
        """Return name -> URL (or `embedded`) of each swarm server, in order.

        In observe mode the upstream is the only server.
        """
        if self.upstream.url:
            return {"upstream": self.upstream.url}
        if isinstance(self.swarm_url, dict):
            return {name: server_root(url) for name, url in self.swarm_url.items()}
        url = server_root(self.swarm_url)
        return {"embedded" if url == "embedded" else "swarm": url}

    def unknown_servers(self) -> str:
        """Return an error about unknown names under `servers`; empty when all are known.

        The names are not checked in observe mode, which has no swarm servers.
        """
        known = self.servers()
        unknown = [] if self.upstream.url else [name for name in self.server if name not in known]
        if not unknown:
            return ""
        names = ", ".join(f"`servers.{one_line(name, 60)}`" for name in unknown[:5])
        return f"{names} in the settings: there is no such server. Known: {', '.join(known)}"


def load(
    file: Path | None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Return the settings of all three sources; later ones win.

    Args:
        file: The YAML file; it may be missing.
        environment: Environment variables; by default those of the process.
        flags: Dotted key -> value, `{"proxy.port": 8001}`; None values are ignored.

    Raises:
        SettingsError: A key is unknown or a value invalid; gives place, key and valid values.
    """
    values: dict[str, Any] = {}
    if file is not None:
        _merge(values, *read_settings(file))
    environ = os.environ if environment is None else environment
    _merge(values, _env_values(environ), Source("environment"))
    set_flags = {key: value for key, value in (flags or {}).items() if value is not None}
    _merge(values, _nest(set_flags), Source("command line"))
    settings = _convert(values, Source("command line"))
    _check_rating(settings.rating)
    _check_engine(settings.engine)
    return settings


def parse_servers(texts: Iterable[str], *, upstream: bool = False) -> str | dict[str, str]:
    """Return the servers of `["URL"]` or `["name=URL", ...]`.

    Args:
        texts: Values of a repeated flag or a comma-separated variable.
        upstream: Whether it is the upstream's address, which is validated when it is used.

    Raises:
        SettingsError: A text is not a server's address, or contains a password.
    """
    named: dict[str, str] = {}
    for text in texts:
        name, mark, url = text.partition("=")
        plain_url = not mark or "/" in name or ":" in name
        key = "swarm" if plain_url else name.strip()
        value = text if plain_url else url
        if key in named:
            key = f"{key}{len(named) + 1}"
        named[key] = value.strip().rstrip("/") if upstream else server_root(value)
    for name, url in named.items():
        if not upstream and _LOGIN.match(url):
            raise SettingsError(
                "the address of a swarm server contains a user or a password, which would be shown",
                where=f"swarm_url {name}",
                todo="Leave them out: the swarm protocol has no login. Reach a closed server "
                "through a tunnel (ssh -L)",
            )
        if url != "embedded" and web_address(url) is None:
            raise SettingsError(
                f"`{url}` is not the URL of a swarm server",
                where=f"swarm_url {name}",
                todo="Give http://HOST:PORT, https://HOST:PORT or `embedded`",
            )
    if list(named) == ["swarm"]:
        return named["swarm"]
    return named


def _env_values(environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, text in environment.items():
        if name.startswith(PREFIX):
            values[name.removeprefix(PREFIX).lower().replace("__", ".")] = text
    nested = _nest(values)
    if url := environment.get("AJET_SWARM_URL"):
        nested.setdefault("swarm_url", parse_servers(url.split(",")))
    return nested


def _nest(dotted: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in dotted.items():
        *path, last = key.split(".")
        section = nested
        for part in path:
            section = section.setdefault(part, {})
            if not isinstance(section, dict):
                raise SettingsError(f"`{key}` cannot be set: `{part}` is not a section")
        section[last] = value
    return nested


def _merge(values: dict[str, Any], more: Mapping[str, Any], source: Source) -> None:
    """Merge `more` into `values`; it is checked separately, so that an error names its source."""
    _convert(more, source)
    for key, value in more.items():
        section = values.get(key)
        if isinstance(value, dict) and isinstance(section, dict) and key != "swarm_url":
            section.update(value)
        else:
            values[key] = dict(value) if isinstance(value, dict) else value


def _convert(values: Mapping[str, Any], source: Source) -> Settings:
    values = with_booleans(values, Settings)
    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        wrong = explained(str(error), values, Settings)
        path = path_text(wrong.steps).lstrip(".")
        what = f"{f'`{path}`' if path else 'the settings'} {wrong.problem}"
        raise SettingsError(what, source.place(path), wrong.todo) from error
    for name, url in settings.servers().items():
        parse_servers([f"{name}={url}"], upstream=bool(settings.upstream.url))
    return settings


def _check_engine(engine: EngineSettings) -> None:
    """Refuse a model that the backend does not have."""
    if engine.backend == "numpy" and engine.model != SHIPPED_MODEL:
        meant = did_you_mean(engine.model, (SHIPPED_MODEL,))
        raise SettingsError(
            f"`engine.model` is `{one_line(engine.model, 120)}`: the numpy backend has only "
            f"{SHIPPED_MODEL}",
            where="settings",
            todo=f"{meant} To train this model, add --backend torch "
            "(`engine.backend: torch`)".strip(),
        )
    if not engine.model.strip():
        raise SettingsError("`engine.model` is empty", where="settings", todo="Name a model")


def _check_rating(rating: RatingSettings) -> None:
    """Refuse ratings whose fields contradict each other."""
    low, high = rating.score_low, rating.score_high
    if not low < high:
        raise SettingsError(
            f"`rating.score_low` ({low:g}) is not below `rating.score_high` ({high:g})",
            where="settings",
            todo="The best score must have the highest reward",
        )
    tags = rating.tags.split(",") if isinstance(rating.tags, str) else rating.tags
    if len(tags) > MAX_TAGS:
        raise SettingsError(
            f"`rating.tags` has {len(tags)} entries", where="settings", todo="Give at most nine"
        )
