"""Names in certificates, contexts of TLS, and where a port may be opened without TLS."""

import ipaddress
import os
import ssl
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from muster.common.credentials import CredentialsSource, TlsIdentity
from muster.common.errors import ConfigError, Unauthenticated


def identity_uri(run: str, name: str) -> str:
    """The URI in the certificate of a run's program."""
    return f"muster://{run}/{quote(name)}"


def server_host(run: str) -> str:
    """The host name in the certificate of a run's server; no address belongs to it."""
    return f"server.{run}.muster"


def require_encrypted(host: str, tls: TlsIdentity | None) -> None:
    """Check that a port without TLS is on the loopback address.

    Raises:
        ConfigError: it is not.
    """
    if tls is None and not _is_loopback(host):
        raise ConfigError(
            f"{host}: without TLS, a port is opened on the loopback address only, so that nobody "
            "else can listen in; expected 127.0.0.1, or launch.tls = true"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def certified_names(run: str, alternative_names: Iterable[str | bytes]) -> set[str]:
    """The URIs of this run among the names of a certificate that was accepted."""
    texts = (name.decode() if isinstance(name, bytes) else name for name in alternative_names)
    return {text for text in texts if text.startswith(identity_uri(run, ""))}


def tls_context(tls: TlsIdentity, server_side: bool) -> ssl.SSLContext:
    """A context that shows this identity, and accepts the certificates of its authority.

    Raises:
        ConfigError: the certificate or the key cannot be read, or they do not fit each other.
    """
    protocol = ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # `require_peer` checks the name
    context.verify_mode = ssl.CERT_REQUIRED
    # Python reads a key only from a file; this one is in memory.
    file = os.memfd_create("key", os.MFD_CLOEXEC)
    try:
        os.write(file, f"{tls.certificate}\n{tls.key}".encode())
        context.load_cert_chain(f"/proc/self/fd/{file}")
        context.load_verify_locations(cadata=tls.authority)
    except ssl.SSLError as error:
        raise ConfigError(
            f"expected a certificate in PEM with its own key, found one of which TLS says "
            f"{error.reason or error}; start the run again, which issues new ones"
        ) from None
    finally:
        os.close(file)
    return context


def renewed_context(source: CredentialsSource, first: TlsIdentity) -> ssl.SSLContext:
    """A context of a listening program, which shows the certificate that `source` has at the moment
    of the handshake.

    Args:
        first: the certificate that it has now.
    """
    listening = tls_context(first, server_side=True)
    latest = first, listening

    def choose(connection: Any, host: str | None, context: ssl.SSLContext) -> None:
        """Called for every handshake, when the other end has said hello."""
        nonlocal latest
        tls = source.current().tls
        if tls is not None and tls != latest[0]:
            latest = tls, tls_context(tls, server_side=True)
        connection.context = latest[1]

    listening.sni_callback = choose
    return listening


def peer_names(connection: Any, run: str) -> set[str]:
    """The URIs of this run in the certificate of a connection's far end.

    Args:
        connection: an `ssl.SSLSocket` or `ssl.SSLObject` after its handshake.
    """
    found = (connection.getpeercert() or {}).get("subjectAltName", ())
    return certified_names(run, (value for kind, value in found if kind == "URI"))


def require_peer(connection: Any, run: str, peer: str) -> None:
    """Check that the far end of a connection has the certificate of a program of this run.

    Raises:
        Unauthenticated: it has another one.
    """
    if identity_uri(run, peer) not in (names := peer_names(connection, run)):
        raise Unauthenticated(
            f"expected the certificate of {peer} of this run, found "
            f"{', '.join(sorted(names)) or 'that of another run'}"
        )
