"""TLS certificates: validation of a server's files, and verification by our clients."""

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ajet_swarm.common.errors import UsageError

if TYPE_CHECKING:  # most commands do not need it
    import ssl


def tls_requested(cert: str, key: str) -> bool:
    """Return whether TLS is requested, after checking its files.

    Args:
        cert: File with the certificate chain; empty without TLS.
        key: File with its private key.

    Raises:
        UsageError: One of them is missing, or they do not belong together.
    """
    if not (cert or key):
        return False
    if not (cert and key):
        raise UsageError(
            "TLS needs a certificate and its key",
            "proxy.tls_key" if cert else "proxy.tls_cert",
            "Give both --tls-cert and --tls-key",
        )
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, _no_password)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        why = getattr(error, "reason", "") or getattr(error, "strerror", "") or error
        raise UsageError(
            f"the certificate and its key cannot be used: {why}",
            f"{cert}, {key}",
            "Give PEM files that belong together, the key without a password",
        ) from error
    return True


def verification_for(url: str, cert: str) -> "ssl.SSLContext | bool":
    """Return the `verify` argument of an HTTP client for a server.

    On this machine the certificate in the file suffices, whatever its name; elsewhere it is trusted
    in addition to those of the system (and of `SSL_CERT_FILE`), and the name must match.

    Args:
        url: Address of the server.
        cert: File with a trusted certificate; may be empty.

    Raises:
        UsageError: The file cannot be read.
    """
    parts = urlsplit(url)
    if parts.scheme != "https":
        return False  # there is nothing to verify; reading all authorities takes 40 ms
    import ssl

    from core.runtime.sockets import is_loopback

    here = bool(cert) and is_loopback(parts.hostname or "")
    try:
        context = ssl.create_default_context(cafile=cert if here else None)
        if cert:
            context.load_verify_locations(cert)
    except OSError as error:
        raise UsageError(
            f"the certificate cannot be read: {error.strerror or error}", cert
        ) from error
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = not here
    return context


def _no_password() -> str:
    """Password callback of an encrypted key: it cannot be entered interactively."""
    raise ValueError("the key has a password")


def absolute_path(path: str) -> str:
    """Return the path of a setting as an absolute one, usable by other processes."""
    return str(Path(path).expanduser().absolute()) if path else ""
