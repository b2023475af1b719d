"""`web`: the console in a browser, and the links that open it."""

import asyncio
import contextlib
import re
import secrets
import signal
import socket
import ssl
import sys
import time
from typing import Any
from urllib.parse import urlsplit

from click import IntRange

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.urls import web_address
from console.cli.common import NotRunning, cert_of, existing_home, need_proxy, settings_of
from console.cli.options import Args, flag, option, takes
from console.cli.output import output, say, say_json, say_result
from core.runtime.access import AccessToken, AccessTokens, lifetime
from core.runtime.home import Home, Role, RunInfo, running
from core.runtime.sockets import bind, is_loopback, public_url
from core.runtime.tls import tls_requested

ROLE = "web"
"""Role of the process in the home."""
PORT = 8090
_LINK_ROLES = ("rater", "viewer")
_WILDCARDS = ("0.0.0.0", "::", "")
_PART = "[A-Za-z0-9_~-][A-Za-z0-9._~-]*"
_SAFE_PATH = re.compile(f"/?({_PART}(/{_PART})*/?)?")
"""A path without dot segments and without signs of addresses and routes."""


@takes(
    option("--host", "address to listen on", default="127.0.0.1"),
    option("--port PORT", f"{PORT}, or the next free one", type=int),
    option("--link", "print a link for this role", choices=_LINK_ROLES),
    option("--name NAME", "name of the link's user, as votes show it"),
    option("--expires TIME", "end of the link: 30m, 8h, 7d", default="8h"),
    flag("--renew", "replace the link of that name"),
    flag("--list", "list the open consoles"),
    option("--most N", "most consoles at once", type=IntRange(1), default=10),
    option("--base-path PATH", "serve it at /PATH/", default=""),
    option("--public-url URL", "its address elsewhere", default=""),
    option("--tls-cert FILE", "certificate chain (PEM)", default=""),
    option("--tls-key FILE", "its private key (PEM)", default=""),
    flag("--plain-http", "listen elsewhere without TLS: links are readable"),
)
def web(args: Args) -> int:
    """Serve consoles, or print a link or the open consoles of the server that runs.

    Raises:
        UsageError: arguments do not fit.
        AjetError: no proxy runs, or the extra `web` is not installed.
    """
    home = existing_home(args)
    info = running(home, ROLE)
    if args.list:
        return _list(args, home, info)
    if info is not None and args.link is None:
        todo = "`ajet-console run web --link rater` prints a link for it"
        raise UsageError(f"it runs already (pid {info.pid})", info.url, todo)
    if args.link is not None:
        args.name = args.name or f"{args.link}-{secrets.token_hex(2)}"
    if info is not None:
        _print_link(args, home, info)
        return 0
    _check(args)
    valid = _check_link(args, home)
    need_proxy(args, home)
    try:
        import aiohttp  # noqa: F401
        import textual_serve  # noqa: F401
    except ImportError as error:
        todo = "pip install 'ajet-console[web]'"
        raise AjetError(f"the extra web is not installed: {error.name}", todo=todo) from error
    output().envelope = False  # it serves until it is ended: a link is printed at once
    with Role(home, ROLE) as role, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(args, home, role, valid))
    return 0


async def _serve(args: Args, home: Home, role: Role, valid: str) -> None:
    from console.web.consoles import BrowserConsoles, remove_leftovers
    from console.web.handshake import Addresses, Handshake
    from console.web.server import WebOptions, WebServer

    tls = None
    if tls_requested(args.tls_cert, args.tls_key):
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(args.tls_cert, args.tls_key)
    sock = bind(args.host, PORT if args.port is None else args.port, args.port is None)
    port = int(sock.getsockname()[1])
    base = _base_path(args.base_path)
    url = public_url(args.host, port, "https" if tls else "http")
    machine = socket.gethostname() if args.host in _WILDCARDS and not args.public_url else ""
    there = public_url(machine, port, "https" if tls else "http") if machine else url
    link = args.public_url.rstrip("/") or f"{there}{base}"
    await asyncio.to_thread(remove_leftovers, home.run)
    tokens = AccessTokens(home)
    consoles = BrowserConsoles(home.run, lambda: _attachment(args, home), args.most)
    options = WebOptions(
        base_path=base,
        cookie=f"ajet_console_{port}",
        cookie_path=urlsplit(link).path or "/",
        secure=link.startswith("https:"),
        owner=home.token(),
        say=_report,
    )
    addresses = Addresses(args.host, args.public_url, not is_loopback(args.host), machine)
    server = WebServer(Handshake(tokens), addresses, consoles, options)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_ in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_, stop.set)
    async with server.serve(sock, tls):
        info = await asyncio.to_thread(
            role.publish, host=args.host, port=port, url=url, extra={"link": link}
        )
        _report(f"The console in a browser: {link}/ (at most {args.most}), Ctrl+C ends it")
        if machine:
            _report(f"If browsers reach it by another name than {machine}, give it: --public-url")
        if valid:
            _report(valid)
        elif args.link is not None:
            _print_link(args, home, info)
        else:
            _report("In another terminal: ajet-console run web --link rater")
        sys.stdout.flush()
        await stop.wait()
        for signal_ in (signal.SIGINT, signal.SIGTERM):  # a second signal ends it at once
            loop.remove_signal_handler(signal_)


def _attachment(args: Args, home: Home) -> Any:
    from console.web.consoles import Attachment

    settings = settings_of(home)
    url = need_proxy(args, home)
    return Attachment(url, cert_of(home), settings.console.theme, settings.rating)


def _check(args: Args) -> None:
    secure = tls_requested(args.tls_cert, args.tls_key)
    if not is_loopback(args.host) and not secure and not args.plain_http:
        raise UsageError(
            "other machines would reach it without TLS: links and votes are readable on the way",
            f"--host {args.host}",
            "Give --tls-cert and --tls-key, or stay on 127.0.0.1 behind a tunnel, or accept it "
            "with --plain-http",
        )
    if args.public_url and not _is_public(args.public_url):
        todo = "Give https://HOST or https://HOST/PATH"
        raise UsageError("not an address of a page", f"--public-url {args.public_url}", todo)
    if not _SAFE_PATH.fullmatch(args.base_path):
        raise UsageError("not a path", f"--base-path {args.base_path}", "Give it as /console")


def _is_public(url: str) -> bool:
    parts = web_address(url)
    if parts is None or not url.isascii() or any(sign in url for sign in "?#@"):
        return False
    return _SAFE_PATH.fullmatch(parts.path) is not None


def _base_path(text: str) -> str:
    path = text.strip("/")
    return f"/{path}" if path else ""


def _check_link(args: Args, home: Home) -> str:
    """Check what a link is made of; return a sentence when it exists already.

    Raises:
        UsageError: It cannot be made.
    """
    if args.link is None:
        return ""
    tokens = AccessTokens(home)
    lifetime(args.expires)
    same = _same_name(args, tokens)
    if same is not None and same.role == args.link and not args.renew:
        return (
            f"The link of {same.name}, {same.role}, is valid; its key cannot be shown again. "
            f"To replace it: ajet-console run web --link {same.role} --name {same.name} --renew"
        )
    _add_token(args, tokens, dry=True)
    return ""


def _same_name(args: Args, tokens: AccessTokens) -> AccessToken | None:
    names = (token for token in tokens.read() if token.name.lower() == args.name.lower())
    return next((name for name in names if not name.expired(time.time())), None)


def _add_token(args: Args, tokens: AccessTokens, *, dry: bool = False) -> str:
    """Add the token of a link; with --renew in place of another link of that name."""
    same, seconds = _same_name(args, tokens), lifetime(args.expires)
    is_link = same is not None and same.role in _LINK_ROLES
    if same is not None and is_link and args.renew:
        if dry:
            return ""
        tokens.revoke(same.name)
    try:
        return tokens.add(args.name, args.link, seconds, dry=dry)
    except UsageError as error:
        todo = f"{error.todo}, or replace its link with --renew" if is_link else error.todo
        raise UsageError(error.what, f"--name {args.name}", todo) from error


def _print_link(args: Args, home: Home, info: RunInfo) -> None:
    token = _add_token(args, AccessTokens(home))
    link = f"{info.extra.get('link', info.url)}/?k={token}"
    if args.json:
        end = time.time() + lifetime(args.expires)
        say_json({"link": link, "name": args.name, "role": args.link, "expires": end})
        return
    say(f"Link of {args.name}, {args.link}, valid for {args.expires}:\n\n  {link}\n")
    say(f"To end it: ajet-console tokens revoke {args.name}")


def _list(args: Args, home: Home, info: RunInfo | None) -> int:
    if info is None:
        todo = "`ajet-console run web` starts it"
        raise NotRunning("no web server runs in this home", str(home.root), todo)
    import httpx

    try:
        # The operator's own server, by the address it published, with the owner's token.
        response = httpx.get(
            f"{info.url}/consoles",
            headers={"Authorization": f"Bearer {home.token()}"},
            verify=False,
            trust_env=False,
        )
        response.raise_for_status()
        answer = response.json()
    except httpx.HTTPError as error:
        raise AjetError(f"the web server does not answer: {error}", info.url) from error
    rows = answer["consoles"]
    lines = [f"{len(rows)} of {answer['most']} consoles are open"]
    for row in rows:
        minutes = (time.time() - row["since"]) / 60
        facts = f"pid {row['pid']}  {row['rss_mb']:.0f} MB  {minutes:.0f} min"
        lines.append(f"{row['name']:20}  {row['role']:8}  {facts}")
    return say_result(args, answer, lines)


def _report(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
