"""The last update of every client: the rules that need it, its file, and what a crash leaves."""

import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.common.compression import Whole
from muster.common.errors import Diverged, LedgerError
from muster.common.exact_sum import BLOCK
from muster.common.exchange import Key, Update
from muster.common.seeds import FloatArray
from muster.common.tensors import WIRE, Vector
from muster.server.account.run_rows import MemoryRow
from muster.server.account.traffic import TransferCost
from muster.server.aggregators import AGGREGATORS, Aggregator, Cohort, Contribution
from muster.server.fleet.devices import EnrolledDevice
from muster.server.knowledge.participation import ParticipationHistory
from muster.server.knowledge.population import Oracle, Population
from muster.server.updates.memory import MEMORY, UpdateMemory
from muster.server.updates.round_updates import PendingUpdate
from muster.server.updates.uploads import InlineBody, UpdateFormat
from muster.wire.bodies import checksum

CLIENTS = [f"c{number}" for number in range(7)]
ABSENT = "c3"
"""A device of the population that is not enrolled."""

ENROLLED = [client for client in CLIENTS if client != ABSENT]
PARAMETERS = 5

Updates = Mapping[str, Vector]
"""The updates of a round, by client."""


def pending(client: str, vector: Vector) -> PendingUpdate:
    """An update that has arrived and counts."""
    body = vector.astype(WIRE).tobytes()
    update = Update(Key(client, 1, 0), 9, checksum(body), len(body), 0.0, 0.0, 0.0)
    inline = InlineBody(body, UpdateFormat(Whole(kind="none"), len(vector)))
    assert inline.fault(update) is None
    return PendingUpdate(update, Contribution(client, "g", 9, 0), inline, TransferCost())


class Server:
    """The server's part of a run: a model, the memory, and what the ledger would have."""

    def __init__(self, folder: Path, rule: Aggregator, parameters: int = PARAMETERS) -> None:
        self.path = folder / MEMORY
        self.parameters = parameters
        self.rule = rule
        self.named: dict[str, MemoryRow] = {}
        self.model = np.ones(parameters, np.float32)
        self.number = 0
        self.restart()

    def restart(self) -> None:
        """Read the memory again, as another process would."""
        self.memory = UpdateMemory(self.path, self.parameters, ENROLLED)
        self.memory.load(self.named.values())

    def aggregate(self, updates: Updates) -> Vector:
        """The model after a round that is not committed yet."""
        contributions = [Contribution(client, "g", 9, 0) for client in updates]
        devices = {c: EnrolledDevice(c, "g", i, 1) for i, c in enumerate(ENROLLED)}
        population = Population(CLIENTS, (), [{} for _ in CLIENTS], devices, {}, Oracle())
        known = self.memory.known(updates)
        cohort = Cohort(
            self.number + 1, contributions, population, ParticipationHistory(), remembered=known
        )
        weighing = self.rule.weigh(cohort, {})
        arrived = [pending(*item) for item in updates.items()]
        fresh = weighing.weights[0] / weighing.normaliser
        return self.memory.step(
            self.model, arrived, self.number + 1, fresh=fresh, past=weighing.past
        )

    def play(self, updates: Updates) -> None:
        """Aggregate and commit a round."""
        model = self.aggregate(updates)
        self.named |= {row.client: row for row in self.memory.durable()}
        self.model, self.number = model, self.number + 1


def rule_of(kind: str, **settings: Any) -> Aggregator:
    rule = AGGREGATORS.parse({"kind": kind, **settings})
    assert isinstance(rule, Aggregator)
    return rule


def courses(rounds: int, seed: int = 1, parameters: int = PARAMETERS) -> list[Updates]:
    """Rounds in which at least one client takes part, with entries of many magnitudes."""
    random, found = np.random.default_rng(seed), list[Updates]()
    while len(found) < rounds:
        part = [client for client in ENROLLED if random.random() < 0.4]
        if part:
            scale = 10.0 ** random.uniform(-6, 1, (len(part), parameters))
            drawn = (random.normal(size=scale.shape) * scale).astype(np.float32)
            found.append(dict(zip(part, drawn, strict=True)))
    return found


# --- the rules, by the formulas of the papers ----------------------------------------------------


def fedvarp(rounds: list[Updates], rate: float) -> FloatArray:
    """Algorithm 1 of FedVARP, as printed, with Δ = trained minus received."""
    theta, y = np.ones(PARAMETERS), {client: np.zeros(PARAMETERS) for client in ENROLLED}
    for updates in rounds:
        v = np.mean([updates[i] - y[i] for i in updates], axis=0) + np.mean([*y.values()], axis=0)
        theta = theta + rate * v
        y |= {i: updates[i].astype(np.float64) for i in updates}
    return theta


def mifa(rounds: list[Updates], rate: float, waits: bool) -> FloatArray:
    """Algorithm 1 of MIFA; with `waits` nothing changes before all devices have taken part."""
    theta, g = np.ones(PARAMETERS), dict[str, FloatArray]()
    for updates in rounds:
        g |= {i: updates[i].astype(np.float64) for i in updates}
        if not waits or len(g) == len(ENROLLED):
            theta = theta + rate * np.sum([*g.values()], axis=0) / len(ENROLLED)
    return theta


@pytest.mark.parametrize(
    ("rule", "formula"),
    [
        (rule_of("fedvarp"), lambda rounds: fedvarp(rounds, 1.0)),
        (rule_of("fedvarp", rate=0.3), lambda rounds: fedvarp(rounds, 0.3)),
        (rule_of("mifa"), lambda rounds: mifa(rounds, 1.0, waits=True)),
        (rule_of("mifa", rate=0.5, start="zero"), lambda rounds: mifa(rounds, 0.5, waits=False)),
    ],
    ids=["fedvarp", "fedvarp-rate", "mifa", "mifa-zero"],
)
def test_the_model_is_that_of_the_papers_algorithm(
    tmp_path: Path, rule: Aggregator, formula: Callable[[list[Updates]], FloatArray]
) -> None:
    server, rounds = Server(tmp_path, rule), courses(40)
    for number, updates in enumerate(rounds, 1):
        server.play(updates)
        np.testing.assert_allclose(server.model, formula(rounds[:number]), rtol=2e-5, atol=1e-6)


def test_mifa_waits_for_every_enrolled_device_and_says_so(tmp_path: Path) -> None:
    server = Server(tmp_path, rule_of("mifa"))
    two = np.full(PARAMETERS, 2, np.float32)
    for client in ENROLLED[:-1]:
        server.play({client: two})
        np.testing.assert_array_equal(server.model, 1)
    server.play({ENROLLED[-1]: two})
    np.testing.assert_array_equal(server.model, 3)  # 1 + the mean of six twos
    population = Population(ENROLLED, (), [{} for _ in ENROLLED], {}, {}, Oracle())
    population.enrolled[:] = True
    cohort = Cohort(
        1, [Contribution("c0", "g", 9, 0)], population, ParticipationHistory(), remembered=1
    )
    assert "start = 'zero'" in rule_of("mifa").weigh(cohort, {}).warnings[0]


# --- crashes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fedvarp", "mifa"])
def test_a_server_that_restarts_after_every_round_has_the_same_bits(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / "other").mkdir()
    steady, restarted = Server(tmp_path, rule_of(kind)), Server(tmp_path / "other", rule_of(kind))
    for updates in courses(30):
        steady.play(updates)
        restarted.restart()
        restarted.play(updates)
        assert restarted.model.tobytes() == steady.model.tobytes()


def test_a_round_that_was_never_committed_leaves_no_trace(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    rule = rule_of("fedvarp")
    steady, killed = Server(tmp_path, rule), Server(tmp_path / "other", rule)
    for updates, lost in zip(courses(30), courses(30, seed=2), strict=True):
        steady.play(updates)
        killed.aggregate(lost)  # written, perhaps durable, but named by no transaction
        killed.restart()
        killed.play(updates)
        assert killed.model.tobytes() == steady.model.tobytes()


def test_only_free_slots_are_written(tmp_path: Path) -> None:
    server = Server(tmp_path, rule_of("fedvarp"))
    for updates in courses(10):
        server.play(updates)
    slots = {client: row.slot for client, row in server.named.items()}
    before = server.path.read_bytes()
    server.aggregate({client: np.full(PARAMETERS, 9, np.float32) for client in ENROLLED})
    after, page = server.path.read_bytes(), 4096
    for place, client in enumerate(ENROLLED):
        valid = (2 * place + slots[client]) * page
        free = (2 * place + 1 - slots[client]) * page
        assert after[valid : valid + page] == before[valid : valid + page]
        assert after[free : free + 20] == np.full(5, 9, WIRE).tobytes()


def test_a_file_that_is_missing_or_damaged_is_refused(tmp_path: Path) -> None:
    server = Server(tmp_path, rule_of("fedvarp"))
    server.play({"c1": np.ones(PARAMETERS, np.float32)})
    server.play({"c1": np.ones(PARAMETERS, np.float32)})
    data = bytearray(server.path.read_bytes())
    data[2 * 4096] ^= 1  # slot 0 of the second client, which is free
    server.path.write_bytes(data)
    server.restart()
    data[3 * 4096] ^= 1
    server.path.write_bytes(data)
    with pytest.raises(LedgerError, match="the update of c1 is not what was committed"):
        server.restart()
    server.path.write_bytes(data[: 3 * 4096])
    with pytest.raises(LedgerError, match="shorter than the updates"):
        server.restart()
    server.path.unlink()
    with pytest.raises(LedgerError, match=r"memory\.bin is missing"):
        server.restart()


def test_a_sum_that_leaves_its_range_diverges_also_after_a_restart(tmp_path: Path) -> None:
    server = Server(tmp_path, rule_of("fedvarp"))
    for client in ("c0", "c1"):
        server.play({client: np.full(PARAMETERS, 6e8, np.float32)})
    for _ in range(2):
        with pytest.raises(Diverged):
            server.aggregate({"c2": np.full(PARAMETERS, 1e9, np.float32)})
        server.restart()
    for _ in range(50):  # the old update is subtracted, so nothing accumulates
        server.play({"c1": np.ones(PARAMETERS, np.float32)})


# --- size ----------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_number_of_clients(tmp_path: Path) -> None:
    parameters, peaks = 2 * BLOCK + 3, []
    for clients in (3, 60):
        path = tmp_path / f"{clients}.bin"
        tracemalloc.start()
        memory = UpdateMemory(path, parameters, [f"c{n}" for n in range(clients)])
        memory.load(())
        for n in range(clients):
            update = pending(f"c{n}", np.full(parameters, n, np.float32))
            memory.step(np.zeros(parameters, np.float32), [update], 1, fresh=1.0, past=1.0)
        rows = memory.durable()
        again = UpdateMemory(path, parameters, [f"c{n}" for n in range(clients)])
        again.load(rows)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        np.testing.assert_array_equal(memory.sum.total(), sum(range(clients)))
        np.testing.assert_array_equal(again.sum.total(), sum(range(clients)))
    assert peaks[1] < 1.1 * peaks[0]
