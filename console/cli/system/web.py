"""`web`: the console in a browser, and the links that open it."""

import argparse
import asyncio
import contextlib
import secrets
import signal
import ssl
import sys
import time
from typing import Any
from urllib.parse import urlsplit

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.urls import web_address
from console.cli.common import (
    NotRunning,
    cert_of,
    existing_home,
    need_proxy,
    say,
    say_json,
    settings_of,
)
from console.cli.options import add_json
from console.cli.output import output
from core.runtime.access import AccessTokens, lifetime
from core.runtime.home import Home, Role, RunInfo, running
from core.runtime.sockets import bind, is_loopback, public_url
from core.runtime.tls import tls_requested

ROLE = "web"
"""Role of the process in the home."""
PORT = 8090


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.set_defaults(handler=web)
    add_json(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, metavar="PORT", help=f"{PORT}, or the next free one")
    parser.add_argument("--link", choices=("rater", "viewer"), help="print a link for this role")
    parser.add_argument("--name", metavar="NAME", help="name of the link's user, as votes show it")
    parser.add_argument(
        "--expires", metavar="TIME", default="8h", help="end of the link: 30m, 8h, 7d"
    )
    parser.add_argument("--list", action="store_true", help="list the open consoles")
    parser.add_argument("--most", type=int, default=10, metavar="N", help="most consoles at once")
    parser.add_argument("--base-path", default="", metavar="PATH", help="serve it at /PATH/")
    parser.add_argument("--public-url", default="", metavar="URL", help="its address elsewhere")
    parser.add_argument("--tls-cert", default="", metavar="FILE", help="certificate chain (PEM)")
    parser.add_argument("--tls-key", default="", metavar="FILE", help="its private key (PEM)")
    parser.add_argument(
        "--plain-http", action="store_true", help="listen elsewhere without TLS: links are readable"
    )


def web(args: argparse.Namespace) -> int:
    """Serve consoles, or print a link or the open consoles of the server that runs.

    Raises:
        UsageError: arguments do not fit.
        AjetError: no proxy runs, or the extra `web` is not installed.
    """
    home = existing_home(args)
    info = running(home, ROLE)
    if args.list:
        return _list(home, info, args.json)
    if info is not None and args.link is None:
        todo = "`ajet-console web --link rater` prints a link for it"
        raise UsageError(f"it runs already (pid {info.pid})", info.url, todo)
    if info is not None:
        _print_link(args, home, info)
        return 0
    _check(args)
    need_proxy(args, home)
    try:
        import aiohttp  # noqa: F401
        import textual_serve  # noqa: F401
    except ImportError as error:
        todo = "pip install 'ajet-console[web]'"
        raise AjetError(f"the extra web is not installed: {error.name}", todo=todo) from error
    output().envelope = False  # it serves until it is ended: a link is printed at once
    with Role(home, ROLE) as role, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(args, home, role))
    return 0


async def _serve(args: argparse.Namespace, home: Home, role: Role) -> None:
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
    link = args.public_url.rstrip("/") or f"{url}{base}"
    await asyncio.to_thread(remove_leftovers, home.run)
    tokens = AccessTokens(home)
    consoles = BrowserConsoles(home.run, lambda: _attachment(args, home), args.most)
    options = WebOptions(base, f"ajet_console_{port}", home.token(), _report)
    addresses = Addresses(args.host, args.public_url, not is_loopback(args.host))
    server = WebServer(Handshake(tokens), addresses, consoles, options)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, stop.set)
    async with server.serve(sock, tls):
        info = role.publish(host=args.host, port=port, url=url, extra={"link": link})
        _report(f"The console in a browser: {link}/ (at most {args.most}), Ctrl+C ends it")
        if args.link is not None:
            _print_link(args, home, info)
        else:
            _report("In another terminal: ajet-console web --link rater")
        sys.stdout.flush()
        await stop.wait()


def _attachment(args: argparse.Namespace, home: Home) -> Any:
    from console.web.consoles import Attachment

    theme = settings_of(home).console.theme
    return Attachment(need_proxy(args, home), cert_of(home), theme)


def _check(args: argparse.Namespace) -> None:
    secure = tls_requested(args.tls_cert, args.tls_key)
    if not is_loopback(args.host) and not secure and not args.plain_http:
        raise UsageError(
            "other machines would reach it without TLS: links and votes are readable on the way",
            f"--host {args.host}",
            "Give --tls-cert and --tls-key, or stay on 127.0.0.1 behind a tunnel, or accept it "
            "with --plain-http",
        )
    if args.public_url and web_address(args.public_url) is None:
        raise UsageError("not an address", f"--public-url {args.public_url}", "Give https://HOST")
    if args.most < 1:
        raise UsageError("at least one console", f"--most {args.most}", "Give 1 or more")
    if urlsplit(args.base_path).path != args.base_path:
        raise UsageError("not a path", f"--base-path {args.base_path}", "Give it as /console")


def _base_path(text: str) -> str:
    path = text.strip("/")
    return f"/{path}" if path else ""


def _print_link(args: argparse.Namespace, home: Home, info: RunInfo) -> None:
    name = args.name or f"{args.link}-{secrets.token_hex(2)}"
    seconds = lifetime(args.expires)
    token = AccessTokens(home).add(name, args.link, seconds)
    link = f"{info.extra.get('link', info.url)}/?k={token}"
    if args.json:
        end = time.time() + seconds
        say_json({"link": link, "name": name, "role": args.link, "expires": end})
        return
    say(f"Link of {name}, {args.link}, valid for {args.expires}:\n\n  {link}\n")
    say(f"To end it: ajet-console token revoke {name}")


def _list(home: Home, info: RunInfo | None, as_json: bool) -> int:
    if info is None:
        todo = "`ajet-console web` starts it"
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
    if as_json:
        say_json(answer)
        return 0
    rows = answer["consoles"]
    say(f"{len(rows)} of {answer['most']} consoles are open")
    for row in rows:
        minutes = (time.time() - row["since"]) / 60
        facts = f"pid {row['pid']}  {row['rss_mb']:.0f} MB  {minutes:.0f} min"
        say(f"{row['name']:20}  {row['role']:8}  {facts}")
    return 0


def _report(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
