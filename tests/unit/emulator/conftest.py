"""Run folders for tests, with consistent ledgers that a test writes itself or draws from a seed."""

import csv
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.server.account.tables import schema

STARTED_AT = 1_750_000_000.0
FINGERPRINT = {"torch": "2.13.0+cpu", "cpu_capability": "AVX2", "device": "cpu", "threads": 1}
SCENARIO = 'name = "small-world"\nseed = 7\n\n[server]\nrounds = 3\n'


class RunFolder:
    """A run folder that a test writes round by round, as the server and the launcher would.

    By default, bodies are 1,000 bytes in each direction, and a device trains for 0.5 s and
    transfers for 0.25 s.

    Attributes:
        ledger: the database, for a test that writes what no method does.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.time = STARTED_AT
        self.rounds = self.version = 0
        self.ledger = sqlite3.connect(path / "ledger.sqlite")
        self.ledger.execute("PRAGMA journal_mode = WAL")
        self.ledger.executescript(schema())
        self.add("run", id="run-1", incarnation=1, started_at=STARTED_AT, population=0,
                  moments="{}")  # fmt: skip
        self.scenario(SCENARIO)

    def scenario(self, text: str) -> None:
        (self.path / "scenario.toml").write_text(text, encoding="utf-8")

    def clients(
        self, *names: str, group: str = "phones", enrolled: bool = True, **row: Any
    ) -> None:
        for name in names:
            position = self._one("SELECT count(*) FROM clients")
            enrollment = {
                "enrolled_at": self.time,
                "sessions": 1,
                "fingerprint": json.dumps(FINGERPRINT),
            }
            columns = {"client": name, "group": group, "position": position, "examples": 100,
                       "enrolled": int(enrolled)}  # fmt: skip
            self.add("clients", **columns | (enrollment if enrolled else {}) | row)
            self.ledger.execute("UPDATE run SET population = population + 1")

    def round(
        self,
        outcomes: Mapping[str, str],
        declined: Mapping[str, str] | None = None,
        unanswered: int = 0,
        seconds: float = 2.0,
        sent: Mapping[str, Mapping[str, Any]] | None = None,
        aborted: Mapping[str, str] | None = None,
        absent: Sequence[str] = (),
        batteries: Mapping[str, float] | None = None,
        x: Mapping[str, Mapping[str, float]] | None = None,
        times: tuple[float, float] | None = None,
        modelled: Mapping[str, float] | None = None,
    ) -> int:
        """Commit a round.

        Args:
            outcomes: by client, "folded", "late", ..., or "late: deadline" with a reason.
            declined: by client, the reason.
            unanswered: number of called clients that did not answer.
            sent: by client, columns of its contribution.
            aborted: by client, the reason why it gave up after it had accepted.
            absent: clients that could not be called.
            batteries: by client, the charge that it reported.
            x: by client, its covariates X, whatever it answered.
            times: scenario seconds at which the round opens, and at which the next one opens.
            modelled: by client, the modelled seconds of its work, if not 0.75.
        """
        self.rounds += 1
        declined, aborted, opened_at = declined or {}, aborted or {}, self.time
        self.time += seconds
        states = {
            client: json.dumps({"battery": battery, "charging": False, "hour": 12.0})
            for client, battery in (batteries or {}).items()
        }
        for client, reason in declined.items():
            self.add("answers", round=self.rounds, client=client, decision="decline",
                      reason=reason, state=states.get(client), at=opened_at)  # fmt: skip
        for client in absent:
            self.add("answers", round=self.rounds, client=client, decision="absent",
                      state=states.get(client), x_age_s=60.0, at=self.time)  # fmt: skip
        base = self.version
        folded = sum(outcome == "folded" for outcome in outcomes.values())
        self.version += folded > 0
        for client, outcome in outcomes.items():
            self.add("answers", round=self.rounds, client=client, decision="accept",
                      state=states.get(client), at=self.time,
                      modelled_s=(modelled or {}).get(client, 0.75),
                      bytes_down=(sent or {}).get(client, {}).get("bytes_down", 1000))  # fmt: skip
            self.contribute(client, outcome, base_version=base, **(sent or {}).get(client, {}))
        for client, reason in aborted.items():
            self.add("answers", round=self.rounds, client=client, decision="abort",
                      reason=reason, state=states.get(client), at=self.time)  # fmt: skip
            self.contribute(client, f"dropped: {reason}", base_version=base, bytes_up=0,
                            bytes_down=0, loss=None)  # fmt: skip
        for client, columns in (x or {}).items():
            self.ledger.execute(
                "UPDATE answers SET x = ?, x_age_s = 0 WHERE round = ? AND client = ?",
                (json.dumps(columns), self.rounds, client),
            )
        weights = [
            (sent or {}).get(client, {}).get("weight", 100.0)
            for client, outcome in outcomes.items()
            if outcome == "folded"
        ]
        total, squares = sum(weights), sum(weight * weight for weight in weights)
        self.add(
            "rounds", round=self.rounds, base_version=base, version=self.version,
            outcome="aggregated" if folded else "empty",
            called=len(outcomes) + len(declined) + len(aborted) + unanswered,
            accepted=len(outcomes) + len(aborted),
            folded=folded, normaliser=total or None, weight_sum=total,
            weight_max=max(weights, default=0.0),
            effective_size=total**2 / squares if squares else 0.0,
            **{
                column: sum((sent or {}).get(client, {}).get(column, 1000) for client in outcomes)
                for column in ("bytes_up", "bytes_down")
            },
            opened_at=opened_at, closed_at=self.time, seconds=seconds,
            **(dict(zip(("scenario_s", "next_s"), times, strict=True)) if times else {}),
        )  # fmt: skip
        return self.rounds

    def contribute(self, client: str, outcome: str, **columns: Any) -> None:
        """Add an update of the newest round, or of the round in `columns`."""
        outcome, _, reason = outcome.partition(": ")
        row = {
            "round": self.rounds, "client": client,
            "call_round": columns.get("round", self.rounds), "attempt": 1,
            "base_version": self.version, "staleness": 1,
            "weight": 100.0 if outcome == "folded" else None, "examples": 100,
            "mask_ratio": 1.0, "bytes_up": 1000, "bytes_down": 1000, "bytes_saved": 0,
            "train_s": 0.5, "transfer_s": 0.25, "loss": 1.0,
            "outcome": outcome, "reason": reason or None,
            "at": self.time,
        }  # fmt: skip
        self.add("contributions", **row | columns)

    def transfer(
        self, client: str, direction: str, began_s: float, wait_s: float, seconds: float, **row: Any
    ) -> None:
        """Add a transfer of 1,000,000 bytes in the newest round, `began_s` after STARTED_AT."""
        size = row.pop("bytes", 1_000_000)
        columns = {
            "round": self.rounds, "client": client, "attempt": 1, "direction": direction,
            "bytes": size, "began_at": STARTED_AT + began_s, "wait_s": wait_s, "seconds": seconds,
            "rate_bps": 8 * size / seconds if seconds else None, "ending": "complete",
        }  # fmt: skip
        self.add("transfers", **columns | row)

    def traffic(
        self,
        group: str,
        *rows: tuple[float, float, float | None, float | None],
        **cells: tuple[float, float, float | None, float | None],
    ) -> None:
        """Journal one second of a group's traffic for each of `rows`, in order: bytes up and down,
        and the capacity up and down; in each second, the same of the cells."""
        names = ("bytes_up", "bytes_down", "capacity_up", "capacity_down")
        of_cells = {name: dict(zip(names, row, strict=True)) for name, row in cells.items()}
        with open(self.path / "journal.jsonl", "a", encoding="utf-8") as file:
            for after, row in enumerate(rows, start=1):
                event = {
                    "event": "traffic", "at": STARTED_AT + after, "group": group, "seconds": 1.0,
                    **dict(zip(names, row, strict=True)), "cells": of_cells,
                    "role": "supervisor", "incarnation": 1,
                }  # fmt: skip
                file.write(json.dumps(event) + "\n")

    def evaluate(self, loss: float, accuracy: float | None = None, **metrics: float) -> None:
        """Add an evaluation of the newest version; its round is 0 before the first round."""
        self.add(
            "evaluations", version=self.version, round=self.rounds, loss=loss, accuracy=accuracy,
            metrics=json.dumps(metrics), seconds=0.1, at=self.time,
        )  # fmt: skip
        self.ledger.execute(
            "UPDATE rounds SET loss = ?, accuracy = ? WHERE round = ?",
            (loss, accuracy, self.rounds),
        )

    def estimate(self, **estimates: Any) -> None:
        """Add the estimates on which the weights of the newest round are based."""
        for name, value in estimates.items():
            self.add("estimates", round=self.rounds, name=name, value=json.dumps(value))

    def population(self, size: int, moments: Mapping[str, float]) -> None:
        """Set the size and the means of the population, as for a server that does not know every
        device."""
        self.ledger.execute(
            "UPDATE run SET population = ?, moments = ?", (size, json.dumps(moments))
        )

    def measure(
        self,
        groups: Mapping[str, tuple[int, float | None, float | None]],
        devices: Mapping[str, tuple[int, float | None, float | None]],
    ) -> None:
        """Add the evaluation of the newest version by group and by device; the values are examples,
        loss and accuracy."""
        for table, column, parts in (("group", "group", groups), ("device", "client", devices)):
            for name, (examples, loss, accuracy) in parts.items():
                of_round = {"round": self.rounds} if table == "group" else {}
                self.add(f"{table}_evaluations", version=self.version, **of_round,
                          **{column: name}, examples=examples, loss=loss,
                          accuracy=accuracy, metrics="{}")  # fmt: skip

    def plan(self, rows: Sequence[tuple[int, str, int, float, float]]) -> None:
        """Write plan.csv; rows are round, group, enrolled, called and delivered."""
        with open(self.path / "plan.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["round", "scenario_s", "group", "enrolled", "called", "available",
                             "accepted", "delivered"])  # fmt: skip
            for number, group, enrolled, called, delivered in rows:
                writer.writerow([number, 60.0 * (number - 1), group, enrolled, called, enrolled,
                                 delivered, delivered])  # fmt: skip

    def fault(self, fault: str, target: str, status: str = "applied", detail: str = "") -> None:
        self.add("faults", at=self.time, round=self.rounds, fault=fault, target=target,
                  status=status, detail=detail)  # fmt: skip

    def end(self, status: str = "completed", detail: str | None = None) -> None:
        self.ledger.execute(
            "UPDATE run SET status = ?, detail = ?, ended_at = ?", (status, detail, self.time)
        )

    def journal(self, *events: Mapping[str, Any]) -> None:
        writer = {"at": self.time, "role": "supervisor", "incarnation": 1}
        with open(self.path / "journal.jsonl", "a", encoding="utf-8") as file:
            file.writelines(json.dumps({**event, **writer}) + "\n" for event in events)

    def commit(self) -> Path:
        """Commit the ledger so that readers see it, and return the folder."""
        self.ledger.commit()
        return self.path

    def close(self) -> None:
        self.ledger.close()

    def add(self, table: str, **row: Any) -> None:
        """Add a row to a table of the ledger."""
        columns = ", ".join(f'"{column}"' for column in row)
        marks = ", ".join("?" * len(row))
        self.ledger.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", [*row.values()])

    def _one(self, sql: str) -> Any:
        with closing(self.ledger.execute(sql)) as cursor:
            return cursor.fetchone()[0]


def draw_run(path: Path, groups: Mapping[str, int], rounds: int, evaluate_every: int = 1) -> Path:
    """Draw a realistic run: groups differ in speed and reliability, and learning slows down."""
    run, chance = RunFolder(path), np.random.default_rng(7)
    members: dict[str, list[str]] = {group: [] for group in groups}
    for group, count in groups.items():
        for name in (f"{group}-{index:04}" for index in range(count)):
            enrolled = bool(chance.random() < 0.95)
            run.clients(name, group=group, enrolled=enrolled, examples=60)
            if enrolled:
                members[group].append(name)
    run.evaluate(2.303, 0.1)
    for number in range(1, rounds + 1):
        _draw_round(run, chance, members)
        if number % evaluate_every == 0:
            noise = chance.normal(0, 0.01)
            left = np.exp(-number / (rounds / 4))
            run.evaluate(0.25 + 2.05 * left + noise, 0.93 - 0.83 * left - noise / 2)
            _draw_parts(run, chance, members, left)
    run.end()
    run.commit()
    run.close()
    return path


def _draw_parts(
    run: RunFolder, chance: np.random.Generator, members: Mapping[str, Sequence[str]], left: float
) -> None:
    groups, devices = {}, {}
    for level, (group, names) in enumerate(members.items()):
        loss = 0.25 + 0.1 * level + 2.05 * left
        groups[group] = (12 * len(names), loss, 1 - loss / 3)
        for name in names:
            own = loss * chance.lognormal(0, 0.2)
            devices[name] = (12, own, max(0.0, 1 - own / 3))
    run.measure(groups, devices)


def _draw_round(
    run: RunFolder, chance: np.random.Generator, members: Mapping[str, Sequence[str]]
) -> None:
    outcomes, declined, sent = {}, {}, {}
    for level, names in enumerate(members.values()):
        for name in names:
            fate = chance.random()
            if fate < 0.15 + 0.2 * level:
                declined[name] = str(chance.choice(["offline", "battery", "busy"]))
                continue
            outcomes[name] = "folded" if fate < 0.93 else str(
                chance.choice(["late: deadline", "dropped: interrupted", "refused: not finite"])
            )  # fmt: skip
            sent[name] = {
                "bytes_up": 40_000, "bytes_down": 40_000,
                "train_s": float(chance.lognormal(-1 + level, 0.4)),
                "transfer_s": float(chance.lognormal(-2.5 + 1.5 * level, 0.5)),
            }  # fmt: skip
    run.round(outcomes, declined, seconds=float(2 + chance.gamma(2, 0.4)), sent=sent)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunFolder]:
    """A new run folder without clients or rounds; its ledger stays open for writing."""
    folder = RunFolder(tmp_path / "run")
    yield folder
    folder.close()


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Draw a finished run: `drawn({"phones": 10}, rounds=5)` returns its folder."""

    def draw(groups: Mapping[str, int], rounds: int, evaluate_every: int = 1) -> Path:
        return draw_run(tmp_path_factory.mktemp("drawn"), groups, rounds, evaluate_every)

    return draw
