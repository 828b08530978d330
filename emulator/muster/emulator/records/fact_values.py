"""The values of facts in the rounds of a run, from its ledger."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from muster.emulator.expectations.facts import CARBON, METRIC
from muster.emulator.expectations.language import Fact
from muster.emulator.records.energy import GRAM_NG, JOULE_UJ, energy_of
from muster.emulator.records.parts import metrics_of

if TYPE_CHECKING:
    import pandas as pd

    from muster.emulator.records.account import Account

Values = Mapping[int, float]
"""The value of a fact by round; rounds without a value are missing."""


class FactValues:
    """The facts of a run.

    Attributes:
        rounds: the numbers of the committed rounds, in order.
    """

    def __init__(self, account: "Account") -> None:
        self._account = account
        self.rounds: list[int] = account.rounds["round"].tolist()
        self._known: dict[Fact, Values] = {}
        self._rounds_of: dict[Fact, list[int]] = {}

    def of(self, fact: Fact) -> Values:
        """The values of a fact."""
        if fact not in self._known:
            self._known[fact] = _READERS[fact.name](self, fact)
        return self._known[fact]

    def newest(self, fact: Fact, round: int) -> float | None:
        """The value of a fact in the newest round up to `round` in which it has one."""
        values = self.of(fact)
        if fact not in self._rounds_of:
            self._rounds_of[fact] = sorted(values)
        rounds = self._rounds_of[fact]
        place = bisect_right(rounds, round)
        return values[rounds[place - 1]] if place else None

    def between(self, first: int, last: int) -> list[int]:
        """The committed rounds from `first` to `last`."""
        return self.rounds[bisect_left(self.rounds, first) : bisect_right(self.rounds, last)]

    # --- tables ----------------------------------------------------------------------------------

    @cached_property
    def _group_of(self) -> "pd.Series[str]":
        return self._account.clients.set_index("client")["group"]

    def _of_group(self, rows: "pd.DataFrame", group: str | None) -> "pd.DataFrame":
        """The rows of the devices of a group; all of them if there is no group."""
        return rows if group is None else rows[rows["client"].map(self._group_of) == group]

    def _sent(self, fact: Fact, *outcomes: str) -> "pd.DataFrame":
        sent = self._of_group(self._account.contributions, fact.group)
        return sent[sent["outcome"].isin(outcomes)]

    def _count(self, rows: "pd.DataFrame", column: str = "round") -> Values:
        """The number of rows of every round."""
        counts = rows.groupby(column).size().reindex(self.rounds, fill_value=0)
        return _values(counts)

    def _column(self, name: str) -> Values:
        return _values(self._account.rounds.set_index("round")[name])

    # --- facts -----------------------------------------------------------------------------------

    def _evaluated(self, fact: Fact) -> Values:
        """Loss or accuracy of the version after each round. A loss that is not a number stays NaN,
        and no condition holds for it; an accuracy that is not a number was not measured."""
        rows = self._evaluations(fact)
        if fact.name == "accuracy":
            rows = rows[rows["accuracy"].notna()]
        return self._after_rounds(dict(zip(rows["version"], rows[fact.name], strict=True)))

    def _metric(self, fact: Fact) -> Values:
        """Another metric of the version after each round; rounds in which it was not measured are
        missing."""
        rows = self._evaluations(fact)
        measured = zip(rows["version"], map(metrics_of, rows["metrics"]), strict=True)
        known = ((version, metrics.get(str(fact.metric))) for version, metrics in measured)
        return self._after_rounds({v: float(value) for v, value in known if value is not None})

    def _evaluations(self, fact: Fact) -> "pd.DataFrame":
        """The evaluations of all devices or of a group."""
        if fact.group is None:
            return self._account.evaluations
        rows = self._account.group_evaluations
        return rows[rows["group"] == fact.group]

    def _after_rounds(self, of_version: Mapping[int, float]) -> Values:
        """The values of versions, by the rounds after which they were the newest."""
        after = self._account.rounds[["round", "version"]].itertuples(index=False)
        return {round: of_version[version] for round, version in after if version in of_version}

    def _called(self, fact: Fact) -> Values:
        if fact.group is None:
            return self._column("called")
        answers = self._of_group(self._account.answers, fact.group)
        return self._count(answers[answers["decision"] != "absent"])

    def _accepted(self, fact: Fact) -> Values:
        if fact.group is None:
            return self._column("accepted")
        answers = self._of_group(self._account.answers, fact.group)
        return self._count(answers[answers["decision"].isin(["accept", "abort"])])

    def _outcome(self, fact: Fact) -> Values:
        return self._count(self._sent(fact, fact.name))

    def _participation(self, fact: Fact) -> Values:
        clients = self._of_group(self._account.clients, fact.group)
        enrolled = int(clients["enrolled_at"].notna().sum())
        folded = self.of(Fact("folded", fact.group))
        return {round: count / enrolled for round, count in folded.items()} if enrolled else {}

    def _call_success(self, fact: Fact) -> Values:
        return _ratio(self.of(Fact("folded", fact.group)), self.of(Fact("called", fact.group)))

    def _share(self, fact: Fact) -> Values:
        return _ratio(self.of(Fact("folded", fact.group)), self.of(Fact("folded")))

    def _lost(self, fact: Fact) -> Values:
        folded = self._sent(fact, "folded").drop_duplicates(["call_round", "client"])
        counted = self._count(folded, "call_round")
        accepted = self.of(Fact("accepted", fact.group))
        return {round: count - counted[round] for round, count in accepted.items()}

    def _counted_twice(self, fact: Fact) -> Values:
        times = self._sent(fact, "folded").groupby(["call_round", "client"]).size()
        again = times[times > 1].reset_index()
        return self._count(again, "call_round")

    def _staleness(self, fact: Fact) -> Values:
        by_round = self._sent(fact, "folded").groupby("round")["staleness"]
        return _values(by_round.mean() if fact.name == "mean_staleness" else by_round.max())

    def _bytes(self, fact: Fact) -> Values:
        up, down = self._column("bytes_up"), self._column("bytes_down")
        return {round: up[round] + down[round] for round in self.rounds}

    def _energy(self, fact: Fact) -> Values:
        """Joules or grams of the calls of every round."""
        energy = energy_of(self._account)
        assert energy is not None, "refused when the scenario is read"
        rows = energy if fact.group is None else energy[energy["group"] == fact.group]
        if fact.name == "wasted_energy":
            rows = rows[~rows["counted"]]
        column, unit = ("co2e_ng", GRAM_NG) if fact.name == CARBON else ("total_uj", JOULE_UJ)
        sums = rows.groupby("round")[column].sum().reindex(self.rounds, fill_value=0)
        return _values(sums / unit)

    def _empty(self, fact: Fact) -> Values:
        rounds = self._account.rounds.set_index("round")
        return _values((rounds["outcome"] == "empty").astype("int64"))

    def _of_round(self, fact: Fact) -> Values:
        return self._column(fact.name)


_READERS: Mapping[str, Callable[[FactValues, Fact], Values]] = MappingProxyType(
    {
        "loss": FactValues._evaluated,
        "accuracy": FactValues._evaluated,
        METRIC: FactValues._metric,
        "participation": FactValues._participation,
        "call_success": FactValues._call_success,
        "share": FactValues._share,
        "called": FactValues._called,
        "accepted": FactValues._accepted,
        "folded": FactValues._outcome,
        "lost": FactValues._lost,
        "late": FactValues._outcome,
        "refused": FactValues._outcome,
        "dropped": FactValues._outcome,
        "duplicate": FactValues._outcome,
        "counted_twice": FactValues._counted_twice,
        "mean_staleness": FactValues._staleness,
        "max_staleness": FactValues._staleness,
        "bytes_up": FactValues._of_round,
        "bytes_down": FactValues._of_round,
        "bytes": FactValues._bytes,
        "energy": FactValues._energy,
        "wasted_energy": FactValues._energy,
        CARBON: FactValues._energy,
        "empty": FactValues._empty,
        "seconds": FactValues._of_round,
    }
)


def _values(series: "pd.Series[float] | pd.Series[int]") -> Values:
    return {int(str(round)): float(value) for round, value in series.items()}


def _ratio(above: Values, below: Values) -> Values:
    """The quotient in every round in which there is one."""
    return {round: value / below[round] for round, value in above.items() if below[round]}
