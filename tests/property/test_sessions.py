"""What one session says changes the account of its own devices, and of no other.

The service runs as in production, on calls that are played by the test. The session of devices a
and c says whatever hypothesis thinks of; device b does what it should. In the end the account of b
is the one of a run in which the session said nothing.
"""

import asyncio
import json
import math
import sqlite3
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args

import grpc
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from muster.common.credentials import GivenCredentials
from muster.common.events import Event
from muster.common.exchange import Fingerprint
from muster.common.facts import Facts
from muster.common.tensors import schema_of
from muster.common.testing import ManualClock, made_credentials
from muster.server.account.ledger import Ledger
from muster.server.account.store import Store
from muster.server.coordination.coordinator import Coordinator
from muster.server.fleet.devices import EnrolledDevice
from muster.server.fleet.fleet import Fleet
from muster.server.program import members_of
from muster.server.rpc.authentication import Authentication
from muster.server.rpc.service import FleetService
from muster.server.settings.population import PopulationMember
from muster.server.settings.process import ServerProcess, TensorShape
from muster.server.settings.server import ServerSettings
from muster.server.testing import NoEvaluation
from muster.v1 import fleet_pb2 as pb
from muster.wire import PROTOCOL_VERSION, SESSION, TOKEN, messages
from muster.wire.bodies import checksum

ClockKind = Literal["rounds", "wall"]

FLEET = made_credentials("device/all")
PARAMETERS = 4
BODY = np.ones(PARAMETERS, "<f4").tobytes()
ROUNDS = 2
EXPECTED = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNAVAILABLE,
    }
)


class Aborted(Exception):
    """The server ended a call with a status."""


class PlayedCall:
    """A call as the service sees it.

    Attributes:
        said: what the server wrote.
    """

    def __init__(self, metadata: Sequence[tuple[str, bytes]], messages: Iterable[Any] = ()) -> None:
        self.said: list[Any] = []
        self._metadata = metadata
        self._heard: asyncio.Queue[Any] = asyncio.Queue()
        for message in messages:
            self.send(message)

    def send(self, message: Any) -> None:
        self._heard.put_nowait(message)

    def close(self) -> None:
        self._heard.put_nowait(grpc.aio.EOF)

    @property
    def context(self) -> "grpc.aio.ServicerContext[Any, Any]":
        """The call, under the type of which a service uses only the methods below."""
        return cast("grpc.aio.ServicerContext[Any, Any]", self)

    # What a service does with its context.

    def invocation_metadata(self) -> Sequence[tuple[str, bytes]]:
        return self._metadata

    async def read(self) -> Any:
        return await self._heard.get()

    async def write(self, message: Any) -> None:
        self.said.append(message)

    async def send_initial_metadata(self, metadata: Any) -> None:
        pass

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        assert code in EXPECTED, f"{code}: {details}"
        raise Aborted(code, details)


class Attendance:
    """The newest session of some devices, and its stream."""

    def __init__(self, service: FleetService, clients: str) -> None:
        self._service = service
        self._clients = clients

    async def enroll(self) -> None:
        """Begin a session."""
        request = pb.EnrollRequest(
            protocol_version=PROTOCOL_VERSION,
            devices=[pb.Identity(client=c, examples=10, capacity=1.0) for c in self._clients],
            fingerprint=messages.encode_fingerprint(Fingerprint("test", "test", "cpu", 1)),
        )
        reply = await self._service.Enroll(request, PlayedCall(((TOKEN, FLEET.shown),)).context)
        self.metadata = ((SESSION, reply.enrolled.session),)

    async def come(self) -> None:
        """Enroll, and open the stream."""
        await self.enroll()
        self.call = PlayedCall(self.metadata)
        self.stream = asyncio.create_task(self._service.Attend(None, self.call.context))
        await settle()

    async def says(self, message: bytes) -> None:
        """Send a message; come again if the server ends the stream because of it."""
        self.call.send(message)
        await settle()
        if self.stream.done():
            with pytest.raises(Aborted):
                await self.stream
            await self.come()

    def newest_call(self, client: str) -> pb.Call:
        heard = map(pb.ServerMessage.FromString, self.call.said)
        return [call for message in heard for call in message.calls if call.client == client][-1]

    async def answers(self, call: pb.Call, decision: Any, body: bytes | None = None) -> None:
        key: dict[str, Any] = {"client": call.client, "round": call.round, "attempt": call.attempt}
        answer = pb.Answer(**key, decision=decision)
        if body is not None:
            answer.update.CopyFrom(update(**key))
        bodies = [] if body is None else [body]
        await self.says(pb.DeviceMessage(bodies=bodies, answers=[answer]).SerializeToString())


class WellBehaved:
    """Device b, which answers the newest call once."""

    def __init__(self, session: Attendance) -> None:
        self._session = session
        self._round = 0

    async def answer(self) -> None:
        call = self._session.newest_call("b")
        if call.round > self._round:
            self._round = call.round
            await self._session.answers(call, pb.DECISION_ACCEPT, BODY)


async def settle() -> None:
    """Let every task go as far as it can: nothing here waits for a clock or a thread."""
    for _ in range(40):
        await asyncio.sleep(0)


def update(client: str, round: int, attempt: int) -> pb.Update:
    return pb.Update(
        client=client,
        round=round,
        attempt=attempt,
        examples=10,
        checksum=checksum(BODY),
        length=len(BODY),
        loss=0.5,
    )


# --- what a says ----------------------------------------------------------------------------------

CLIENTS = st.sampled_from(["a", "c", "b", "", "x" * 3000, "\0"])
NUMBERS = st.sampled_from([0, 1, 2, 3, 2**31, 2**32 - 1])
LARGE = st.sampled_from([0, 1, 10, 11, 16, 17, 2**40, 2**53, 2**63 - 1, 2**63, 2**64 - 1])
FLOATS = st.sampled_from([0.0, 0.5, 1.0, -1.0, 1e9, 1e308, 5e-324, math.nan, math.inf, -math.inf])
X = st.lists(FLOATS, max_size=2)
CHECKSUMS = st.sampled_from([bytes(16), b"", bytes(3000)])
BODIES = st.sampled_from([BODY, BODY, BODY[::-1], b"", bytes(17), bytes(40)])
SECONDS = ("train_s", "fetch_s", "loss", "modelled_s", "fetch_wait_s", "fetched_at", "slot_wait_s")
KEYS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "client": st.sampled_from(["a", "c"]),
        "round": st.sampled_from([1, 2]),
        "attempt": st.integers(1, 6),
    }
)
"""Some of them are keys of calls."""


def changed(right: st.SearchStrategy[Any], **others: st.SearchStrategy[Any]) -> Any:
    """Messages with up to two fields changed."""

    def change(message: Any, changes: dict[str, Any]) -> Any:
        return type(message)(**{**{f.name: v for f, v in message.ListFields()}, **changes})

    some = st.lists(st.sampled_from(sorted(others)), max_size=2, unique=True)
    changes = some.flatmap(
        lambda names: st.fixed_dictionaries({name: others[name] for name in names})
    )
    return st.builds(change, right, changes)


KEY = {"client": CLIENTS, "round": NUMBERS, "attempt": NUMBERS}
STATES = changed(
    st.just(pb.DeviceState(battery=0.5, hour=12.0, network="wifi")),
    battery=FLOATS,
    hour=FLOATS,
    network=st.sampled_from(["", "x" * 3000]),
)
VALUATIONS = changed(
    st.just(pb.Valuation(received_accuracy=0.5)), received_accuracy=FLOATS, own_accuracy=FLOATS
)
UPDATES = changed(
    KEYS.map(lambda key: update(**key)),
    examples=LARGE,
    length=LARGE,
    steps=LARGE,
    **dict.fromkeys(Facts._fields, FLOATS),
    checksum=CHECKSUMS,
    **KEY,
    **dict.fromkeys(SECONDS, FLOATS),
)
ANSWERS = changed(
    KEYS.map(lambda key: pb.Answer(**key, decision=pb.DECISION_ACCEPT, update=update(**key)))
    | KEYS.map(lambda key: pb.Answer(**key, decision=pb.DECISION_DECLINE, reason=pb.REASON_BUSY)),
    decision=st.integers(0, 4),
    reason=st.sampled_from([1, 2, 25, 40, 99]),
    modelled_s=FLOATS,
    update=UPDATES,
    state=STATES,
    x=X,
    away_steps=NUMBERS,
    valuation=VALUATIONS,
    **KEY,
)
OBSERVATIONS = changed(
    KEYS.map(lambda key: pb.Observation(client=key["client"], x=[0.5])),
    client=CLIENTS,
    state=STATES,
    x=X,
)


@st.composite
def messages_of_devices(draw: st.DrawFn) -> bytes:
    answers = draw(st.lists(ANSWERS, max_size=3))
    updates = sum(answer.HasField("update") for answer in answers)
    bodies = draw(st.lists(BODIES, min_size=updates, max_size=updates))
    message = pb.DeviceMessage(bodies=bodies, answers=answers)
    if draw(st.booleans()):
        seen = draw(st.lists(OBSERVATIONS, max_size=2))
        message.heartbeat.CopyFrom(pb.Heartbeat(devices=seen))
    return message.SerializeToString()


def header(update: pb.Update, offset: int = 0) -> pb.SubmitMessage:
    return pb.SubmitMessage(header=pb.SubmitHeader(update=update, offset=offset))


SUBMITS = st.builds(
    lambda first, chunks: [first, *(pb.SubmitMessage(chunk=chunk) for chunk in chunks)],
    st.builds(header, UPDATES, st.just(0) | LARGE),
    st.lists(BODIES, max_size=2),
)
FETCHES = changed(
    st.just(pb.FetchRequest(version=0)),
    version=NUMBERS,
    offset=LARGE,
    chunk_bytes=st.sampled_from([1, 4096, 2**32 - 1]),
)
Said = Sequence[bytes | list[pb.SubmitMessage] | pb.FetchRequest]
SAID: st.SearchStrategy[Said] = st.lists(
    messages_of_devices() | st.binary(max_size=60) | SUBMITS | FETCHES, max_size=6
)


def in_full(**changes: Any) -> list[pb.SubmitMessage]:
    """Submit of a right update, but for some fields."""
    right = {"client": "a", "round": 1, "attempt": 1}
    wrong = update(**{**right, **{k: v for k, v in changes.items() if k in right}})
    wrong.MergeFrom(pb.Update(**changes))
    return [header(wrong), pb.SubmitMessage(chunk=BODY)]


# --- the run --------------------------------------------------------------------------------------


async def say(service: FleetService, session: Attendance, said: Said) -> None:
    """Say all of it in a session."""
    for message in said:
        if isinstance(message, bytes):
            await session.says(message)
            continue
        try:
            if isinstance(message, pb.FetchRequest):
                await service.Fetch(message, PlayedCall(session.metadata).context)
            else:
                call = PlayedCall(session.metadata, message)
                call.close()
                await service.Submit(None, call.context)
        except Aborted:
            pass
        await settle()


class Run:
    """Two rounds of a server; devices a and c share a session, and b has one of its own."""

    def __init__(self, clock: ClockKind, folder: Path) -> None:
        config = ServerProcess(
            run="run",
            seed=1,
            clock=clock,
            server=ServerSettings(rounds=ROUNDS),
            task="{}",
            training="{}",
            population=[
                PopulationMember(client=client, group="g", examples=10) for client in "abc"
            ],
            x={"g": ["load"]},
            schema_=[TensorShape(name="w", shape=[PARAMETERS])],
        )
        schema, time = schema_of({"w": (PARAMETERS,)}), ManualClock()
        self.ledger = folder / "ledger.sqlite"
        self.journal: list[dict[str, Any]] = []
        self.fleet = Fleet(
            EnrolledDevice(m.client, "g", i, 10) for i, m in enumerate(config.population)
        )
        ledger = Ledger(self.ledger)
        ledger.begin("run", members_of(config), at=0.0, population=3, moments={})
        store = Store(folder / "models", ledger, schema)
        self.coordinator = Coordinator(
            config, schema, self.fleet, ledger, store, folder, time, self._tell
        )
        self.coordinator.load(np.zeros(PARAMETERS, np.float32))
        known = GivenCredentials(made_credentials("server", [FLEET], "abc"))
        service = FleetService(self.coordinator, time, Authentication(known, self.fleet))
        self.service = service
        self.session, self.b = Attendance(service, "ac"), Attendance(service, "b")

    def _tell(self, event: Event) -> None:
        self.journal.append(json.loads(json.dumps({"event": event.name, **event.fields()})))

    def expects(self, client: str) -> bool:
        """Whether a round waits for a device."""
        round = self.coordinator.receiver.round
        return round is not None and round.expects(client)

    async def begin(self) -> "asyncio.Task[tuple[str, str]]":
        """Begin the first round, with all devices."""
        running = asyncio.create_task(self.coordinator.run(NoEvaluation()))  # type: ignore[arg-type]
        await self.session.come()
        await self.b.come()
        await settle()
        return running

    async def play(self, said: Said, b_first: bool) -> None:
        """Both rounds, in each of which the session says all of it.

        Args:
            b_first: whether b has spoken before the session does.
        """
        running, b = await self.begin(), WellBehaved(self.b)
        for _ in range(ROUNDS):
            if b_first:
                await b.answer()
            await say(self.service, self.session, said)
        for _ in range(ROUNDS):  # the session makes way for what it may have left open
            await self.session.come()
            for client in filter(self.expects, "ac"):
                call = self.session.newest_call(client)
                await self.session.answers(call, pb.DECISION_DECLINE)
            await b.answer()
        assert running.done(), "a round was left open"
        assert running.result()[0] == "completed"
        await self.coordinator.finish("completed", "", 0.0)
        self.coordinator.close()

    def account_of_b(self) -> Any:
        """What is known of b in the end."""
        b = self.fleet.devices["b"]
        state = (b.away_until, b.seen, b.z, b.capacity, b.present)
        told = [event for event in self.journal if event.get("client") == "b"]
        return rows_of_b(self.ledger), told, state


def rows_of_b(path: Path) -> dict[str, list[Any]]:
    """The rows of b in all tables; and all sums over columns can be made."""
    found = {}
    with sqlite3.connect(path) as ledger:
        for table in ("clients", "answers", "contributions", "transfers"):
            found[table] = ledger.execute(f"SELECT * FROM {table} WHERE client = 'b'").fetchall()
            for _, column, *_ in ledger.execute(f"PRAGMA table_info({table})").fetchall():
                ledger.execute(f'SELECT sum("{column}") FROM {table}').fetchone()
        rounds = ledger.execute(
            "SELECT count(*) FROM contributions WHERE round NOT IN (SELECT round FROM rounds)"
        ).fetchone()
        assert rounds == (0,), "a contribution belongs to a round that there is"
    ledger.close()
    return found


def run(said: Said, clock: ClockKind, b_first: bool) -> Any:
    async def played(folder: str) -> Any:
        disturbed = Run(clock, Path(folder))
        await disturbed.play(said, b_first)
        return disturbed.account_of_b()

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(played(folder))


UNDISTURBED = {clock: run([], clock, b_first=True) for clock in get_args(ClockKind)}


DECLINED: dict[str, Any] = {"round": 1, "attempt": 1, "decision": pb.DECISION_DECLINE}
LAST_WORD_THEN_WRONG = pb.DeviceMessage(
    answers=[
        pb.Answer(client="a", **DECLINED),
        pb.Answer(client="c", **DECLINED, x=[1.0, 2.0]),
    ]
).SerializeToString()


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SAID, st.sampled_from(get_args(ClockKind)), st.booleans())
@example([in_full(examples=2**63)], "rounds", True)
@example([in_full(length=2**64 - 1)], "wall", True)
@example([in_full(length=2**62), in_full(length=2**62, attempt=2)], "wall", True)
@example([in_full(client="b")], "rounds", True)
@example([in_full(round=2**32 - 1)], "rounds", True)
@example([LAST_WORD_THEN_WRONG], "rounds", True)
def test_what_a_session_says_changes_nothing_of_another_device(
    said: Said, clock: ClockKind, b_first: bool
) -> None:
    assert run(said, clock, b_first) == UNDISTURBED[clock]


async def test_a_session_that_was_replaced_is_not_heard_any_more(tmp_path: Path) -> None:
    run = Run("rounds", tmp_path)
    running = await run.begin()
    old, stream, call = run.session.call, run.session.stream, run.session.newest_call("a")
    await run.session.enroll()
    answer = pb.Answer(
        client="a", round=call.round, attempt=call.attempt, decision=pb.DECISION_DECLINE
    )
    old.send(pb.DeviceMessage(answers=[answer]).SerializeToString())
    await stream
    assert run.expects("a")
    run.coordinator.stop("stopped", "the test is over")
    await running
