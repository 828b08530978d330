"""Checks of weights, estimates and models against what the run's own rule makes of the ledger."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from muster.common.errors import LedgerError
from muster.common.events import AppMeasured
from muster.common.tensors import Vector, safetensors_header
from muster.emulator.records.summary import MODEL
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence, Row
from muster.emulator.run_audit.leaves import MISSING, compare, pairs
from muster.emulator.run_audit.repeated_rule import RepeatedRule
from muster.emulator.run_audit.result import CheckLog, sha256, sha256_of
from muster.emulator.run_audit.vectors import (
    KeptBody,
    Unknown,
    UnknownBody,
    UnknownState,
    initial_of,
    kept_bodies,
    kept_sums,
    newest_version,
    sha_of_version,
)
from muster.server.aggregators import State, Weighing
from muster.server.settings.process import ServerProcess
from muster.server.updates.secure_sums import OpenedSum

_VERSIONS = "SELECT * FROM rounds WHERE outcome = 'aggregated' ORDER BY round"

_WEIGHTS = "the weights by the rule of the run"


Made = Callable[[int, State, Vector], None]
"""Takes the number of a version, the state of the rule at it, and its model."""


def _nothing(version: int, state: State, model: Vector) -> None:
    """Take a version, and make nothing of it."""


def check_weighing(evidence: Evidence, log: CheckLog) -> None:
    """The weights, normalisers and estimates are those that the run's own rule gives again."""
    if evidence.makes_again:
        log.skip("they are checked with what was kept of the rounds")
    elif isinstance(config := repeatable(evidence), str):
        log.skip(config)
    else:
        repetition = Repetition(evidence, log, config, None)
        if repetition.rounds() and evidence.committed and repetition.has_state:
            states = evidence.one("SELECT count(*) FROM aggregator_state")
            log.require(states > 0, "states of the rule", "one, which it has returned", states)


def check_aggregation(evidence: Evidence, log: CheckLog) -> None:
    """Every version that the rule makes again from the kept updates, or from secure sums, has the
    SHA-256 of the ledger."""
    if not evidence.makes_again:
        option = "secure.keep_sums" if evidence.secure else "keep_updates"
        log.skip(f"the scenario does not set server.{option}")
    elif isinstance(config := repeatable(evidence), str):
        log.skip(config)
    else:
        with TemporaryDirectory(prefix="muster-audit-") as folder:
            repetition = Repetition(evidence, log, config, Path(folder))
            repetition.compare_initial()
            if repetition.rounds():
                replay = repetition.replay
                _check_offered(evidence, log, config, replay.state, replay.newest)


def check_model(evidence: Evidence, log: CheckLog) -> None:
    """The model of the run is the one that its rule offers after the newest version."""
    if not (evidence.folder / MODEL).is_file():
        log.skip(f"{MODEL}: the run has not ended")
    elif isinstance(config := evidence.config, str):
        log.skip(f"{MODEL}: {config}")
    elif (newest := newest_version(evidence, config)) is None:
        log.skip(f"{MODEL}: the newest version is not there")
    else:
        _check_offered(evidence, log, config, UnknownState(), newest)


def _check_offered(
    evidence: Evidence, log: CheckLog, config: ServerProcess, state: State, newest: Vector
) -> None:
    """Compare the model of the run with what the rule offers."""
    path = evidence.folder / MODEL
    if not path.is_file():
        return
    try:
        offered = config.server.aggregator.result(state, newest)
    except Unknown as unknown:
        log.skip(f"{MODEL}: what the rule offers follows from {unknown}")
        return
    expected = sha256(safetensors_header(config.tensors), offered.tobytes())
    log.compare(f"SHA-256 of {MODEL}", expected, sha256_of(path))


def repeatable(evidence: Evidence) -> ServerProcess | str:
    """The configuration of the server; a sentence if its rule cannot be repeated."""
    config = evidence.config
    if not isinstance(config, str) and config.server.aggregator.runs_strategy():
        return "the strategy of an app has made the versions, in a process of its own"
    return config


class Repetition:
    """Lets the rule weigh the rounds of a run again, and compares what it gives with the ledger.

    Args:
        folder: where what devices have sent last is kept meanwhile; None: neither the updates of
            the run nor its sums were kept, so that versions cannot be made again.
        made: takes every version that is made again, with the state of the rule.
    """

    def __init__(
        self,
        evidence: Evidence,
        log: CheckLog,
        config: ServerProcess,
        folder: Path | None,
        made: Made = _nothing,
    ) -> None:
        self._made = made
        self.replay = RepeatedRule(evidence, config, initial_of(evidence, config), folder)
        self._evidence = evidence
        self._log = log
        self._makes_again = folder is not None
        self._format = config.sum_format
        self._header = safetensors_header(config.tensors)

    @property
    def has_state(self) -> bool:
        """Whether the rule has returned a state for the newest round, and it is known."""
        state = self.replay.state
        return not isinstance(state, UnknownState) and bool(state)

    def compare_initial(self) -> None:
        """Compare version 0 with the ledger."""
        found = sha256(self._header, self.replay.newest.tobytes())
        self._log.compare("SHA-256 of version 0", sha_of_version(self._evidence, 0), found)

    def rounds(self) -> bool:
        """Repeat all rounds; return whether every one could be repeated."""
        return all(self._repeated(row) for row in self._evidence.rows(_VERSIONS))

    def _repeated(self, row: Row) -> bool:
        round, log = row["round"], self._log
        folded = self._evidence.folded(round)
        bodies: Sequence[KeptBody | UnknownBody] = [UnknownBody()] * len(folded)
        try:
            sums, formats = None, self.replay.formats
            if self._makes_again and self._format is not None:
                sums = kept_sums(self._evidence, log, formats, round, folded, self._format)
                if sums is None:
                    return False  # the reason is in the log; nothing after it can be made
            elif self._makes_again:
                bodies = kept_bodies(self._evidence, log, formats, round, folded)
                if len(bodies) != row["folded"]:
                    return False
            return self._weighed_and_made(row, folded, bodies, sums)
        except LedgerError:
            raise
        except Unknown as unknown:
            log.skip(f"{_WEIGHTS}: they follow from {unknown}")
        except Exception as error:  # code of the user's own, and a ledger that may say anything
            found = f"{type(error).__name__}: {error}"
            log.require(False, _WEIGHTS, "those of the ledger", found, round)
        return False

    def _weighed_and_made(
        self,
        row: Row,
        folded: Sequence[Row],
        bodies: Sequence[KeptBody | UnknownBody],
        sums: Sequence[OpenedSum] | None,
    ) -> bool:
        counted = [self.replay.counted(*update) for update in zip(folded, bodies, strict=True)]
        weighing = self.replay.weigh(row["round"], counted)
        self._compare_weighing(row, folded, weighing)
        if not self._makes_again:
            if self.replay.keeps_state:
                self._compare_names(row["round"], weighing.estimates)
            self.replay.pass_over(weighing)
            return True
        if folded:  # with the numbers of the ledger, which may be rounded otherwise
            given = [float(update["weight"]) for update in folded]
            weighing = weighing._replace(weights=given, normaliser=row["normaliser"])
        made = self.replay.make(row["round"], counted, weighing, sums)
        self._compare_estimates(row["round"], made.estimates)
        self._compare_names(row["round"], weighing.estimates, made.estimates)
        self._made(row["version"], made.state, made.model)
        found, expected = (
            sha256(self._header, made.model.tobytes()),
            sha_of_version(self._evidence, row["version"]),
        )
        source = "its updates" if sums is None else "its sum"
        what = f"SHA-256 of version {row['version']}, made again from {source}"
        self._log.compare(what, found, expected, row["round"])
        return found == expected  # otherwise every later version would differ too

    def _compare_weighing(self, row: Row, folded: Sequence[Row], weighing: Weighing) -> None:
        round, log = row["round"], self._log
        for update, weight in zip(folded, weighing.weights, strict=True):
            compare(log, "weight", weight, update["weight"], round, update["client"])
        if folded:  # without updates, the ledger has no normaliser
            compare(log, "normaliser", weighing.normaliser, row["normaliser"], round)
        self._compare_estimates(round, weighing.estimates)

    def _compare_names(self, round: int, *estimates: Mapping[str, Any]) -> None:
        """Compare which estimates a round has."""
        expected = {AppMeasured.name, *(name for of_part in estimates for name in of_part)}
        for name in sorted(self._evidence.estimates(round).keys() - expected):
            self._log.require(False, f"estimate {name}", "none, by the rule", "one", round)

    def _compare_estimates(self, round: int, estimates: Mapping[str, Any]) -> None:
        recorded = self._evidence.estimates(round)
        for name, value in json.loads(json.dumps(dict(estimates))).items():
            for place, right, found in pairs(value, recorded.get(name, MISSING)):
                compare(self._log, name, right, found, round, place or None)


CHECKS = (
    Check(
        "weights by the rule of the run",
        "What the rule gives for every round when it is asked again: weights, divisor and "
        "estimates ([below](#weights-are-asked-for-again))",
        check_weighing,
    ),
    Check(
        "versions made again from what was kept",
        "Only with `server.keep_updates` or `server.secure.keep_sums`: see "
        "[below](#versions-made-again-bit-for-bit). The weights of the rule are asked for here",
        check_aggregation,
    ),
    Check(
        "the model of the run",
        "`model.safetensors` is what the rule offers after the newest version.",
        check_model,
    ),
)
