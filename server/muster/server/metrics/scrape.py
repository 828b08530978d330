"""What Prometheus asks the server, and the replies: a request of HTTP/1.1 for each connection."""

from dataclasses import dataclass
from http import HTTPStatus

from muster.common.errors import Forbidden, MusterError, RemoteProtocolError, Unauthenticated

PATH = "/metrics"
_BEARER = "bearer "


@dataclass(frozen=True, slots=True)
class Scrape:
    """A request for the metrics.

    Attributes:
        accept: the formats that the caller understands, as in the header of HTTP; empty: any.
        shown: the caller's token and name (`Credentials.shown`); None: it shows none.
    """

    accept: str
    shown: bytes | None


def parse_request(head: bytes) -> Scrape:
    """Read the lines of a request before its body.

    Raises:
        RemoteProtocolError: it is no request of HTTP/1, or one for anything else than the metrics.
    """
    first, *lines = head.decode("latin-1").splitlines() or [""]
    method, _, rest = first.partition(" ")
    path, _, version = rest.partition(" ")
    if not version.startswith("HTTP/1."):
        raise RemoteProtocolError(f"expected a request of HTTP/1.1, found {first[:100]!r}")
    if method != "GET" or path.partition("?")[0] != PATH:
        raise RemoteProtocolError(f"expected GET {PATH}, found {method[:20]} {path[:100]}")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Scrape(headers.get("accept", ""), _token(headers.get("authorization", "")))


def _token(authorization: str) -> bytes | None:
    """The bytes of a bearer token in hexadecimal; None if there is none."""
    if not authorization.lower().startswith(_BEARER):
        return None
    try:
        return bytes.fromhex(authorization[len(_BEARER) :])
    except ValueError:
        return None


def reply(status: HTTPStatus, content_type: str, body: bytes) -> bytes:
    """A reply, after which the connection is closed."""
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    if status is HTTPStatus.UNAUTHORIZED:
        head.append("WWW-Authenticate: Bearer")
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


def refusal(error: MusterError) -> bytes:
    """The reply to a request that is refused."""
    status = HTTPStatus.SERVICE_UNAVAILABLE
    if isinstance(error, Unauthenticated):
        status = HTTPStatus.UNAUTHORIZED
    elif isinstance(error, Forbidden):
        status = HTTPStatus.FORBIDDEN
    elif isinstance(error, RemoteProtocolError):
        status = HTTPStatus.BAD_REQUEST
    return reply(status, "text/plain; charset=utf-8", f"{error}\n".encode())
