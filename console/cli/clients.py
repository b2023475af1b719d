"""`clients`: the settings with which a client uses the fake vLLM, ready to paste."""

import contextlib

from console.cli.options import PROXY, Args, argument, flag, takes
from console.cli.output import say_result
from console.clients import catalog
from console.clients.catalog import (
    ANY_KEY,
    DEFAULT_CONTEXT,
    DEFAULT_MODEL,
    OWN_KEY,
    Client,
    fill,
    find,
)

KEYS = (
    "`%KEY%` stands for the proxy's key: `--show-key` prints it. Any model name is accepted "
    "unless `proxy.served_model_name` is set."
)
SESSIONS = (
    "For a client that does not send a conversation id, use a separate address for each "
    "conversation: %BASE%/sessions/NAME/v1"
)


@takes(
    argument("name", "the client; all when left out", required=False, default=""),
    flag("--list", "print only the names of the clients", dest="names"),
    flag("--show-key", "print the proxy's key as well"),
    PROXY,
)
def clients(args: Args) -> int:
    """Print the settings of one client, or of all.

    Raises:
        UsageError: there is no client with that name.
    """
    from ajet_swarm.common.errors import UsageError
    from console.cli.common import cert_of, client_key, effective, existing_home, proxy_url
    from console.clients.catalog import AGENT_PROMPT, SMALL, window_of
    from core.runtime.sockets import public_url

    if args.names:
        known = [{"name": client.name, "title": client.title} for client in catalog.clients()]
        lines_of_list = (f"{client.name:14} {client.title}" for client in catalog.clients())
        return say_result(args, {"clients": known}, lines_of_list)
    matches = find(args.name)
    if not matches:
        names = ", ".join(client.name for client in catalog.clients())
        raise UsageError(f"no client is called {args.name}", todo=f"One of: {names}")
    home = existing_home(args)
    settings = effective(args, home)
    proxy = settings.proxy
    requires_key = bool(proxy.api_key or proxy.api_key_file)
    scheme = "https" if proxy.tls_cert else "http"
    base = proxy_url(args, home) or public_url(proxy.host, proxy.port, scheme)
    key = OWN_KEY if requires_key else ANY_KEY
    if requires_key and args.show_key:
        key = client_key(settings, home)
    model = proxy.served_model_name or DEFAULT_MODEL
    context = None
    if proxy_url(args, home):  # the home's key is only for the home's own proxy
        own = ""
        with contextlib.suppress(UsageError):  # without the key, the context window is unknown
            own = client_key(settings, home) if requires_key and not args.url else ""
        context = window_of(base, own, cert_of(home))
    values = (base, key, model, context or DEFAULT_CONTEXT)
    rows = [
        {
            "name": match.name,
            "title": match.title,
            "settings": "\n".join(fill(line, *values) for line in lines(match)),
        }
        for match in matches
    ]
    shown = [line for row in rows for line in row["settings"].split("\n")]
    is_agent = any(match.agent for match in matches)
    if is_agent and context is not None and context < AGENT_PROMPT:
        shown.append(f"# {SMALL.format(context=context)}")
    shown.append(f"# {fill(SESSIONS, base)}")
    if requires_key and not args.show_key:
        shown.append(f"# {fill(KEYS, key=OWN_KEY)}")
    return say_result(args, {"base_url": base, "model": model, "clients": rows}, shown)


def lines(client: Client) -> list[str]:
    """Return a client's part of the output, before its placeholders are filled in."""
    output = [f"# {client.title} ({client.api})"]
    if client.note:
        output.append(f"# {client.note}")
    for snippet in client.snippets:
        output += [*([f"# in {snippet.file}:"] if snippet.file else []), snippet.text, ""]
    return output
