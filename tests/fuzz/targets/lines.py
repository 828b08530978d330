"""Targets: the JSON lines of a gateway's control port, its replies to devices, and the requests of
Prometheus."""

from collections.abc import Mapping
from functools import partial

from tests.fuzz.mutation import json_mutation
from tests.fuzz.target import Target, same

from muster.client.connection.slots import decode_reply
from muster.common.config import Section
from muster.common.errors import ConfigError, RemoteProtocolError
from muster.emulator.gateway.requests import DEVICE_REQUESTS, REQUESTS, Hello, parse_request
from muster.server.metrics.port import parse_request as parse_scrape


def _read(known: Mapping[str, type[Section]], line: bytes) -> Section:
    return parse_request(line, known)


def _verify(found: Section) -> None:
    assert same(type(found).from_json(found.to_json()), found)


def _verify_hello(found: Hello) -> None:
    assert same(Hello.from_json(found.to_json()), found)


TARGETS = (
    Target(
        name="controller-requests",
        read=partial(_read, REQUESTS),
        refusals=(ConfigError,),
        verify=lambda found: None,
        seeds=lambda: [
            b'{"do": "ping"}',
            b'{"do": "stats", "clients": ["a"]}',
            b'{"do": "set", "clients": null, "shape": {"down_bps": 1e6, "rtt_s": 0.1}}',
            b'{"do": "set_shared", "most_down_bps": 1e6, "up_factor": 0.5}',
            b'{"do": "fault", "fault": "quota", "direction": "up", "bytes": 5}',
            b'{"do": "heal", "fault": null, "direction": "up"}',
            b'{"do": "upstream", "address": "127.0.0.1:5000"}',
        ],
        mutate=json_mutation(*REQUESTS, "clients", "shape", "fault", "direction", "up", "rate"),
    ),
    Target(
        name="device-requests",
        read=partial(_read, DEVICE_REQUESTS),
        refusals=(ConfigError,),
        verify=_verify,
        seeds=lambda: [
            b'{"do": "contend", "client": "a", "round": 1, "active": true, "of": 2}',
            b'{"do": "take", "client": "a", "round": 1}',
            b'{"do": "give", "client": "a", "round": 1}',
        ],
        mutate=json_mutation(*DEVICE_REQUESTS, "do", "client", "round", "active", "of"),
    ),
    Target(
        name="slot-replies",
        read=lambda line: decode_reply(line, "contend"),
        refusals=(RemoteProtocolError, ConnectionRefusedError),
        verify=lambda reply: None,
        seeds=lambda: [
            b'{"round": 1, "client": "a", "granted": true}\n',
            b'{"error": "no", "again": true}\n',
        ],
        mutate=json_mutation("granted", "error", "again"),
    ),
    Target(
        name="hellos",
        read=Hello.from_json,
        refusals=(ConfigError,),
        verify=_verify_hello,
        seeds=lambda: [b'{"token": "00ff"}'],
        mutate=json_mutation("token"),
    ),
    Target(
        name="scrapes",
        read=parse_scrape,
        refusals=(RemoteProtocolError,),
        verify=lambda found: None,
        seeds=lambda: [
            b"GET /metrics HTTP/1.1\nAccept: text/plain;version=0.0.4\nAuthorization: Bearer 00ff",
            b"GET /metrics?a=b HTTP/1.0",
            b"GET / HTTP/1.1",
        ],
    ),
)
