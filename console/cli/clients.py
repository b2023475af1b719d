"""`clients`: what to set so that a client asks the fake vLLM, ready to paste."""

import argparse
import contextlib

from console.cli.options import add_proxy_access
from console.clients.catalog import CLIENTS, find
from console.clients.snippets import ANY_KEY, DEFAULT_CONTEXT, DEFAULT_MODEL, OWN_KEY, Client, fill

KEYS = (
    "With a key set, `%KEY%` stands for it: `--show-key` prints it. Any model name is accepted "
    "unless `proxy.served_model_name` is set."
)
SESSIONS = (
    "A client that does not say which conversation a request belongs to can be given an address "
    "of its own for each: %BASE%/sessions/NAME/v1"
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.set_defaults(handler=clients)
    parser.add_argument(
        "name", nargs="?", default="", metavar="NAME", help="which client; all when left out"
    )
    parser.add_argument(
        "--list", dest="names", action="store_true", help="only the names of the clients"
    )
    parser.add_argument("--show-key", action="store_true", help="print the proxy's key too")
    add_proxy_access(parser)


def clients(given: argparse.Namespace) -> int:
    """Print the settings.

    Raises:
        UsageError: there is no client of that name.
    """
    from ajet_swarm.common.errors import UsageError
    from console.cli.common import cert_of, look_home, proxy_url, say
    from console.cli.effective import client_key, effective
    from console.clients.window import AGENT_PROMPT, SMALL, window_of
    from core.runtime.sockets import public_url

    if given.names:
        for one in CLIENTS:
            say(f"{one.name:14} {one.title}")
        return 0
    found = find(given.name)
    if not found:
        names = ", ".join(one.name for one in CLIENTS)
        raise UsageError(f"no client is called {given.name}", todo=f"One of: {names}")
    home = look_home(given)
    settings = effective(given, home)
    proxy = settings.proxy
    asked = bool(proxy.api_key or proxy.api_key_file)
    scheme = "https" if proxy.tls_cert else "http"
    base = proxy_url(given, home) or public_url(proxy.host, proxy.port, scheme)
    key = OWN_KEY if asked else ANY_KEY
    if asked and given.show_key:
        key = client_key(settings, home)
    model = proxy.served_model_name or DEFAULT_MODEL
    context = None
    if proxy_url(given, home):  # the home's key is for the home's proxy alone
        own = ""
        with contextlib.suppress(UsageError):  # without the key the window is not known
            own = client_key(settings, home) if asked and not given.url else ""
        context = window_of(base, own, cert_of(home))
    for one in found:
        for line in lines(one):
            say(fill(line, base, key, model, context or DEFAULT_CONTEXT))
    if context is not None and context < AGENT_PROMPT:
        say(f"# {SMALL.format(context=context)}")
    say(f"# {fill(SESSIONS, base)}")
    if asked and not given.show_key:
        say(f"# {fill(KEYS, key=OWN_KEY)}")
    return 0


def lines(client: Client) -> list[str]:
    """A client's part of the output, with the marks left in."""
    told = [f"# {client.title} ({client.api})"]
    if client.note:
        told.append(f"# {client.note}")
    for one in client.snippets:
        told += [*([f"# in {one.file}:"] if one.file else []), one.text, ""]
    return told
