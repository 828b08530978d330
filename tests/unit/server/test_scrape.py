"""The requests of Prometheus, and the replies to them."""

from http import HTTPStatus

import pytest

from muster.common.errors import Forbidden, RemoteProtocolError, Unauthenticated, Unreachable
from muster.common.testing import made_credentials
from muster.server.metrics.port import parse_request, refusal, reply

SHOWN = made_credentials("metrics", byte=7).shown


def test_a_request_has_what_prometheus_sends() -> None:
    head = (
        f"GET /metrics?x=1 HTTP/1.1\r\nHost: 127.0.0.1:9464\r\nUser-Agent: Prometheus/2.42.0\r\n"
        f"accept: text/plain;version=0.0.4\r\nAUTHORIZATION: Bearer {SHOWN.hex()}"
    )
    found = parse_request(head.encode())
    assert found.accept == "text/plain;version=0.0.4"
    assert found.shown == SHOWN


@pytest.mark.parametrize(
    "header", ["", "Authorization: Basic 00ff", "Authorization: Bearer xyz", "Authorization"]
)
def test_a_request_without_a_token_shows_none(header: str) -> None:
    assert parse_request(b"GET /metrics HTTP/1.0\n" + header.encode()).shown is None


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"", "expected a request of HTTP/1.1, found ''"),
        (b"\x16\x03\x01", "expected a request"),
        (b"GET /metrics", "expected a request"),
        (b"PRI * HTTP/2.0", "expected a request"),
        (b"GET /metricsx HTTP/1.1", "expected GET /metrics, found GET /metricsx"),
        (b"POST /metrics HTTP/1.1", "expected GET /metrics, found POST /metrics"),
    ],
)
def test_other_requests_are_refused(head: bytes, message: str) -> None:
    with pytest.raises(RemoteProtocolError) as refused:
        parse_request(head)
    assert message in str(refused.value)


def test_a_reply_has_the_length_of_its_body_and_ends_the_connection() -> None:
    assert reply(HTTPStatus.OK, "text/plain", b"abc\n") == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n"
        b"Connection: close\r\n\r\nabc\n"
    )


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Unauthenticated("who?"), b"401 Unauthorized"),
        (Forbidden("no"), b"403 Forbidden"),
        (RemoteProtocolError("what?"), b"400 Bad Request"),
        (Unreachable("too many"), b"503 Service Unavailable"),
    ],
)
def test_a_refusal_has_a_status_and_the_reason(error: Exception, status: bytes) -> None:
    said = refusal(error)  # type: ignore[arg-type]
    assert said.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert said.endswith(f"\r\n\r\n{error}\n".encode())
    assert (b"WWW-Authenticate: Bearer\r\n" in said) == isinstance(error, Unauthenticated)
