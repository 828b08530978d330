"""What muster relies on in a transport, held against gRPC over TCP and the one in memory alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc
import pytest

if TYPE_CHECKING:
    from tests.conformance.conftest import Serve

MEBI = bytes(1 << 20)

EOF = grpc.aio.EOF

PAUSE_S = 0.3
"""Enough for 40 MiB over loopback; a test passes as well where it is not."""


async def failure(call: Any) -> grpc.aio.AioRpcError:
    """The error with which a call ends."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def echo(requests: Any, context: Any) -> None:
    while (message := await context.read()) is not EOF:
        await context.write(message)


async def test_a_unary_call_brings_its_answer_and_carries_metadata(serve: Serve) -> None:
    seen: list[tuple[str, str | bytes]] = []

    async def method(request: bytes, context: Any) -> bytes:
        seen.extend((k, v) for k, v in context.invocation_metadata() if k.startswith("muster"))
        return request[::-1]

    ends = await serve(unary_unary=method)
    answer = await ends.method("unary_unary")(b"abc", metadata=(("muster-x-bin", b"\x00\xff"),))
    assert answer == b"cba"
    assert seen == [("muster-x-bin", b"\x00\xff")]


async def test_an_abort_arrives_with_its_code_and_details(serve: Serve) -> None:
    async def method(request: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")
        return b"never"

    ends = await serve(unary_unary=method)
    error = await failure(ends.method("unary_unary")(b""))
    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "no such thing")


async def test_an_abort_brings_its_trailing_metadata(serve: Serve) -> None:
    codes = []

    async def method(requests: Any, context: Any) -> bytes:
        try:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "later", (("after-s", "2"),))
        except grpc.aio.AbortError:
            codes.append(context.code())
            raise
        return b"never"

    ends = await serve(stream_unary=method)
    error = await failure(ends.method("stream_unary")(requests_of(b"")))
    assert list(error.trailing_metadata() or ()) == [("after-s", "2")]
    assert codes == [error.code()] == [grpc.StatusCode.RESOURCE_EXHAUSTED]


async def requests_of(*requests: bytes) -> AsyncIterator[bytes]:
    for each in requests:
        yield each


async def test_a_handler_that_raises_ends_the_call_as_unknown(serve: Serve) -> None:
    async def method(request: bytes, context: Any) -> bytes:
        raise ValueError("a bug")

    ends = await serve(unary_unary=method)
    error = await failure(ends.method("unary_unary")(b""))
    assert error.code() is grpc.StatusCode.UNKNOWN
    assert "a bug" in (error.details() or "")


async def test_a_method_that_nobody_serves_is_unimplemented(serve: Serve) -> None:
    ends = await serve(unary_unary=echo)
    error = await failure(ends.channel.unary_unary("/test.Test/other")(b""))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_stream_keeps_its_order_and_ends_with_eof(serve: Serve) -> None:
    ends = await serve(stream_stream=echo)
    call = ends.method("stream_stream")()
    sent = [bytes([n]) for n in range(100)]

    async def write() -> None:
        for message in sent:
            await call.write(message)
        await call.done_writing()

    writing = asyncio.create_task(write())
    found = []
    while (message := await call.read()) is not EOF:
        found.append(message)
    await writing
    assert found == sent
    assert await call.code() is grpc.StatusCode.OK
    assert await call.read() is EOF, "and again"


async def test_answers_that_were_sent_before_an_abort_arrive(serve: Serve) -> None:
    async def method(request: bytes, context: Any) -> None:
        await context.write(b"1")
        await context.write(b"2")
        await context.abort(grpc.StatusCode.NOT_FOUND, "no more")

    ends = await serve(unary_stream=method)
    call, found = ends.method("unary_stream")(b""), []

    async def read_on() -> None:
        while True:
            found.append(await call.read())

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await read_on()
    assert found == [b"1", b"2"]
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_the_server_may_end_a_stream_while_the_client_writes(serve: Serve) -> None:
    async def method(requests: Any, context: Any) -> None:
        await context.read()

    ends = await serve(stream_stream=method)
    call = ends.method("stream_stream")()
    await call.write(b"1")
    assert await call.read() is EOF
    with pytest.raises(asyncio.InvalidStateError):
        await call.write(b"2")


async def test_an_answer_may_come_before_all_requests_were_sent(serve: Serve) -> None:
    stopped = asyncio.Event()

    async def method(requests: Any, context: Any) -> bytes:
        return await context.read()  # type: ignore[no-any-return]

    async def requests() -> Any:
        try:
            yield b"first"
            await asyncio.Event().wait()
        finally:
            stopped.set()

    ends = await serve(stream_unary=method)
    call = ends.method("stream_unary")(requests())
    assert await call == b"first"


async def test_requests_that_fail_cancel_the_call(serve: Serve) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def method(requests: Any, context: Any) -> bytes:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return b"never"

    async def requests() -> Any:
        yield b"first"
        await began.wait()
        raise ValueError("a bug of the client")

    ends = await serve(stream_unary=method)
    with pytest.raises(asyncio.CancelledError):
        await ends.method("stream_unary")(requests())
    await cancelled.wait()


async def test_initial_metadata_comes_before_the_first_message(serve: Serve) -> None:
    go_on = asyncio.Event()

    async def method(request: bytes, context: Any) -> None:
        await context.send_initial_metadata(())
        await go_on.wait()
        await context.write(b"1")

    ends = await serve(unary_stream=method)
    call = ends.method("unary_stream")(b"")
    await call.initial_metadata()
    go_on.set()
    assert [message async for message in call] == [b"1"]


async def test_initial_metadata_of_a_call_that_fails_is_empty(serve: Serve) -> None:
    async def method(request: bytes, context: Any) -> None:
        await context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")

    ends = await serve(unary_stream=method)
    call = ends.method("unary_stream")(b"")
    assert not list(await call.initial_metadata())
    with pytest.raises(grpc.aio.AioRpcError):
        async for _ in call:
            pass


async def test_cancelling_a_read_cancels_the_call_at_both_ends(serve: Serve) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def method(requests: Any, context: Any) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    ends = await serve(stream_stream=method)
    call = ends.method("stream_stream")()
    reading = asyncio.create_task(call.read())
    await began.wait()
    reading.cancel()
    await asyncio.wait({reading})
    assert call.cancelled()
    await cancelled.wait()


async def test_a_deadline_ends_the_call_at_both_ends(serve: Serve) -> None:
    cancelled = asyncio.Event()

    async def method(request: bytes, context: Any) -> bytes:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return b"never"

    ends = await serve(unary_unary=method)
    error = await failure(ends.method("unary_unary")(b"", timeout=0.2))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await cancelled.wait()


async def test_a_writer_waits_when_nobody_reads(serve: Serve) -> None:
    written, go_on = [], asyncio.Event()

    async def method(requests: Any, context: Any) -> None:
        await go_on.wait()
        while await context.read() is not EOF:
            pass

    ends = await serve(stream_stream=method)
    call = ends.method("stream_stream")()

    async def write() -> None:
        for number in range(40):
            await call.write(MEBI)
            written.append(number)
        await call.done_writing()

    writing = asyncio.create_task(write())
    await asyncio.wait({writing}, timeout=PAUSE_S)
    assert len(written) < 40
    go_on.set()
    assert await call.read() is EOF
    await writing


async def test_a_server_waits_when_the_client_does_not_read(serve: Serve) -> None:
    written = []

    async def method(request: bytes, context: Any) -> None:
        for number in range(40):
            await context.write(MEBI)
            written.append(number)

    ends = await serve(unary_stream=method)
    call = ends.method("unary_stream")(b"")
    await call.initial_metadata()
    await asyncio.sleep(PAUSE_S)
    assert len(written) < 40
    assert sum([len(message) async for message in call]) == 40 * len(MEBI)


async def test_a_broken_connection_fails_its_calls_as_unavailable(serve: Serve) -> None:
    cancelled = asyncio.Event()

    async def method(requests: Any, context: Any) -> None:
        try:
            await context.write(b"hello")
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    ends = await serve(stream_stream=method)
    call = ends.method("stream_stream")()
    assert await call.read() == b"hello"
    await ends.break_links()
    error = await failure(call.read())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    await cancelled.wait()
    # The channel connects again. A call that it still put on the broken connection is lost too.
    lost = grpc.StatusCode.UNAVAILABLE
    while lost is grpc.StatusCode.UNAVAILABLE:
        again = ends.method("stream_stream")()
        try:
            assert await again.read() == b"hello"
            break
        except grpc.aio.AioRpcError as error:
            lost = error.code()
    assert lost is grpc.StatusCode.UNAVAILABLE
    again.cancel()


async def test_a_server_that_waits_for_a_message_learns_that_the_connection_broke(
    serve: Serve,
) -> None:
    ended = asyncio.Event()

    async def method(requests: Any, context: Any) -> None:
        await context.write(b"hello")
        try:
            while await context.read() is not EOF:
                pass
        finally:  # EOF, or cancelled: gRPC promises neither
            ended.set()

    ends = await serve(stream_stream=method)
    call = ends.method("stream_stream")()
    assert await call.read() == b"hello"
    await ends.break_links()
    await ended.wait()
    await failure(call.read())


async def test_a_write_to_a_broken_stream_fails(serve: Serve) -> None:
    async def method(requests: Any, context: Any) -> None:
        await context.write(b"hello")
        await asyncio.Event().wait()

    ends = await serve(stream_stream=method)
    call = ends.method("stream_stream")()
    assert await call.read() == b"hello"
    await ends.break_links()

    async def write_until_it_fails() -> None:
        while True:
            await call.write(b"lost")
            await asyncio.sleep(0.01)

    with pytest.raises((grpc.aio.AioRpcError, asyncio.InvalidStateError)):
        await write_until_it_fails()


async def test_half_close_lets_the_server_answer_on(serve: Serve) -> None:
    async def method(requests: Any, context: Any) -> None:
        while await context.read() is not EOF:
            pass
        for number in range(3):
            await context.write(bytes([number]))

    ends = await serve(stream_stream=method)
    call = ends.method("stream_stream")()
    await call.done_writing()
    with pytest.raises(asyncio.InvalidStateError):
        await call.write(b"too late")
    found = []
    while (message := await call.read()) is not EOF:
        found.append(message)
    assert found == [b"\x00", b"\x01", b"\x02"]


async def test_a_stopped_server_is_unavailable_at_once_and_waited_for_on_request(
    serve: Serve,
) -> None:
    async def method(request: bytes, context: Any) -> bytes:
        return b"here"

    ends = await serve(unary_unary=method)
    assert await ends.method("unary_unary")(b"") == b"here"
    await ends.stop(None)
    error = await failure(ends.method("unary_unary")(b""))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    error = await failure(ends.method("unary_unary")(b"", wait_for_ready=True, timeout=0.3))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_stop_with_grace_lets_calls_end(serve: Serve) -> None:
    go_on, began = asyncio.Event(), asyncio.Event()

    async def method(request: bytes, context: Any) -> bytes:
        began.set()
        await go_on.wait()
        return b"ended in order"

    ends = await serve(unary_unary=method)
    call = asyncio.ensure_future(ends.method("unary_unary")(b""))
    await began.wait()
    stopping = asyncio.create_task(ends.stop(5.0))
    await asyncio.sleep(0)
    go_on.set()
    assert await call == b"ended in order"
    await stopping


async def test_an_answer_stream_may_be_an_iterator(serve: Serve) -> None:
    async def method(requests: Any, context: Any) -> Any:
        async for message in requests:
            yield message * 2

    ends = await serve(stream_stream=method)
    call = ends.method("stream_stream")()
    await call.write(b"ab")
    assert await call.read() == b"abab"
    await call.done_writing()
    assert await call.read() is EOF


async def test_a_closed_channel_refuses_calls_and_ends_those_that_go_on(serve: Serve) -> None:
    ends = await serve(stream_stream=echo)
    call = ends.method("stream_stream")()
    await call.write(b"1")
    assert await call.read() == b"1"
    await ends.channel.close()
    with pytest.raises((asyncio.CancelledError, grpc.aio.AioRpcError)):
        await call.read()
    with pytest.raises(grpc.aio.UsageError):
        await ends.method("stream_stream")().read()
