"""The HTTP application of the live page: the page, its events, the lives of devices, and actions.

Only who knows the page's address may read, because it contains a token. Actions need a second
token, the operator's. Requests that name another host, or come from a page of another origin, are
refused, so that a web site that a person visits cannot use the person's browser to get in.
"""

import asyncio
import hmac
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import orjson
from pydantic import Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from muster.common.clock import Clock
from muster.common.config import Section, validate
from muster.common.errors import MusterError
from muster.emulator.injection import by_hand as fault_control
from muster.emulator.injection.manual_faults import FaultRequest, HealRequest
from muster.emulator.live.device_life import device_life
from muster.emulator.live.follower import LOOK_S, Follower
from muster.emulator.live.frames import PageReader
from muster.emulator.live.page_address import PageAddress
from muster.emulator.live.page_files import INDEX, PAGE, live_index
from muster.emulator.run_folder import control
from muster.emulator.run_folder.folder import LEDGER

Action = Literal["inject", "heal", "pause", "unpause", "stop"]


class PauseRequest(Section):
    """A request to pause programs of the fleet; `target` is as in a scenario."""

    target: dict[str, Any] = Field(default_factory=dict)
    for_s: float | None = None
    until_healed: bool = False


def act(folder: Path, action: Action, values: Mapping[str, Any]) -> str:
    """Do what a person asked for, and say what was done.

    Raises:
        ConfigError: the request is wrong, or cannot take effect in this run.
        Unreachable: no run goes on in the folder.
        RunFailed: the run's server does not answer.
    """
    source = f"the request to {action}"
    if action == "stop":
        control.stop(folder)
        return "asked the server to stop the run"
    if action == "inject":
        wanted = validate(FaultRequest, values, source)
        return _inject(folder, **dict(wanted))
    if action == "pause":
        return _inject(folder, kind="pause", **dict(validate(PauseRequest, values, source)))
    if action == "heal":
        names = fault_control.heal(folder, validate(HealRequest, values, source).name)
    else:
        names = fault_control.heal(folder, kind="pause")
    return f"healed: {', '.join(names)}"


def _inject(folder: Path, **options: Any) -> str:
    done = fault_control.inject(folder, **options)
    return f"{done.name} acts on {len(done.targets)} target{'s' * (len(done.targets) != 1)}"


OPERATOR = "x-muster-operator"

_HEARTBEAT_S = 10.0
_MOST_VIEWERS = 16
_MOST_REQUEST_BYTES = 1 << 16
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


def live_app(
    follower: Follower, address: PageAddress, clock: Clock, stopping: Callable[[], bool]
) -> ASGIApp:
    """The application for the page of one run.

    Args:
        stopping: whether the program is about to end; event streams then end too.
    """
    viewers = set[PageReader]()

    async def events(request: Request) -> Response:
        if len(viewers) >= _MOST_VIEWERS:
            return _refusal(f"{_MOST_VIEWERS} pages are open already; close one", 503)
        return StreamingResponse(stream(), media_type="text/event-stream")

    async def stream() -> AsyncIterator[bytes]:
        reader, seen = PageReader(), -1
        viewers.add(reader)
        try:
            spoke_at = clock.monotonic()
            while not stopping():
                newest = follower.newest
                if newest is not None and newest.number != seen and (frame := reader.frame(newest)):
                    spoke_at = clock.monotonic()
                    yield b"data: " + frame + b"\n\n"
                elif clock.monotonic() - spoke_at > _HEARTBEAT_S:
                    spoke_at = clock.monotonic()
                    yield b": still here\n\n"
                seen = seen if newest is None else newest.number
                await clock.sleep_until(clock.monotonic() + LOOK_S)
            await asyncio.to_thread(follower.look)
            if follower.newest is not None and (frame := reader.frame(follower.newest)):
                yield b"data: " + frame + b"\n\n"
            yield b"event: bye\ndata: {}\n\n"
        finally:
            viewers.discard(reader)

    async def device(request: Request) -> Response:
        client, ledger = request.path_params["client"], follower.folder / LEDGER
        try:
            found = await asyncio.to_thread(device_life, ledger, client)
        except MusterError as error:
            return _refusal(str(error), 404)
        return _json(found)

    async def faults(request: Request) -> Response:
        # Imported when first needed, as for actions.
        from muster.emulator.faults.forms import fault_forms

        return _json(fault_forms())

    async def action(request: Request) -> Response:
        # Imported when first needed: a page that is only watched starts half a second earlier.
        from muster.emulator.live.app import Action, act

        name: Action = request.path_params["action"]
        if name not in get_args(Action):
            return _refusal(f"no action {name!r:.40}", 404)
        shown = request.headers.get(OPERATOR, "")
        if not _same(shown, address.operator):
            return _refusal("expected the operator's token, which `muster live` has printed", 403)
        body = await request.body()
        if len(body) > _MOST_REQUEST_BYTES:
            return _refusal("the request is too long", 413)
        try:
            values = orjson.loads(body or b"{}")
            if not isinstance(values, dict):
                return _refusal("expected a JSON object", 400)
            return _json({"done": await asyncio.to_thread(act, follower.folder, name, values)})
        except orjson.JSONDecodeError as error:
            return _refusal(f"expected a JSON object, found {error}", 400)
        except MusterError as error:
            return _refusal(str(error), 409)

    async def file(request: Request) -> Response:
        name = request.path_params.get("name") or INDEX
        if name not in _files():
            return _refusal("no such page", 404)
        path = PAGE / name
        content = live_index() if name == INDEX else path.read_bytes()
        return Response(content, media_type=_TYPES[path.suffix])

    routes = [
        Route("/events", events),
        Route("/devices/{client}", device),
        Route("/faults", faults),
        Route("/actions/{action}", action, methods=["POST"]),
        Route("/{name:path}", file),
    ]
    app = Starlette(routes=[Mount("/{token}", routes=routes)])
    return _Guarded(app, address)


class _Guarded:
    """Refuses requests that are not from the page, before anything else sees them."""

    def __init__(self, app: ASGIApp, address: PageAddress) -> None:
        self._app, self._address = app, address
        self._hosts = {f"{host}:{address.port}" for host in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                named = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message["headers"], *named]
            await send(message)

        why = self._refused(Request(scope))
        app = self._app if why is None else _refusal(why, 403)
        await app(scope, receive, send_guarded)

    def _refused(self, request: Request) -> str | None:
        host = request.headers.get("host", "")
        if host not in self._hosts:
            return "expected the address that `muster live` has printed, found another host"
        if request.headers.get("origin", f"http://{host}") != f"http://{host}":
            return "a page of another origin may not use this one"
        _, token, *_ = [*request.url.path.split("/", 2), ""]
        if not _same(token, self._address.token):
            return "expected the address that `muster live` has printed, with its token"
        return None


def _same(shown: str, expected: str) -> bool:
    return hmac.compare_digest(shown.encode(), expected.encode())


def _files() -> set[str]:
    return {str(path.relative_to(PAGE)) for path in PAGE.rglob("*") if path.suffix in _TYPES}


def _json(value: object) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")


def _refusal(why: str, status: int) -> Response:
    return PlainTextResponse(why, status_code=status)
