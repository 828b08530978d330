"""Attribution of waiting times to devices, and rates of links, from the table `transfers`.

Every transfer waits from `asked` to `began` and moves bytes from `began` to `ended`. While k others
transfer, each of them is charged 1/k of every second of waiting. On a clock that runs at 1/k of the
true pace (`Bend`), the seconds that one device waits for another are the overlap of two intervals.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pydantic import ValidationError

from muster.common.lines import LinkModel
from muster.common.shared_lines import SharedLine, SharedPart
from muster.emulator.gateway.rates import model_of
from muster.emulator.links.settings import LinkSettings
from muster.emulator.links.shared import SharedLink
from muster.emulator.records.account import Account
from muster.emulator.report.intervals import Bend, Floats, Overlaps
from muster.emulator.scenario.population import names_of

DIRECTIONS = ("down", "up")

NOBODY = ""
"""The column of seconds that no other transfer explains. No client or group has this name."""

_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GroupLinks:
    """The links of a group, as the scenario sets them.

    Attributes:
        line_of: returns the link of a device, given the device's name.
        shared: the link that the group's devices share.
    """

    line_of: Callable[[str], LinkModel]
    shared: SharedLine

    @property
    def queues(self) -> bool:
        """Whether the group's devices queue for the slots of the shared link."""
        return self.shared.slots is not None and self.shared.overflow == "queue"


def links_of(scenario: Mapping[str, Any]) -> dict[str, GroupLinks]:
    """The links of every group of a resolved scenario.

    A group whose tables cannot be read (for example, because a trace file was moved) counts as one
    without limits, so that its transfers are still shown.
    """
    found, seed = {}, scenario.get("seed", 0)
    groups = scenario.get("groups", [])
    sizes = [_Size(str(group.get("name")), group.get("count", 0)) for group in groups]
    positions = {client: place for place, (client, _) in enumerate(names_of(sizes))}
    for group in groups:
        try:
            link = LinkSettings.model_validate(group.get("link", {}))
            table = SharedLink.model_validate(group.get("shared_link", {}))
            shared = table.line(seed, table.name or str(group.get("name")))
        except ValidationError:
            link, shared = LinkSettings(), SharedLine()
        found[str(group.get("name"))] = GroupLinks(_lines(link, seed, positions), shared)
    return found


@dataclass(frozen=True, slots=True)
class _Size:
    """A group, as far as its devices' names follow from it."""

    name: str
    count: int


def _lines(
    link: LinkSettings, seed: int, positions: Mapping[str, int]
) -> Callable[[str], LinkModel]:
    def line(client: str) -> LinkModel:
        try:
            [shape] = link.shapes_of(seed, [client], [positions.get(client, 0)])
        except ValueError:  # a file was moved
            return LinkModel()
        return model_of(shape)

    return line


def moves_of(
    transfers: pd.DataFrame, clients: pd.DataFrame, links: Mapping[str, GroupLinks]
) -> pd.DataFrame:
    """Transfers with their links; transfers without a beginning or an end are left out.

    Columns in addition to those of `transfers`:

    - `group`, a category in the order of the population;
    - `link`, the group, or the name of the link that it shares with other groups;
    - `asked`, `began` and `ended`, seconds since the first transfer was requested;
    - `own_bps`, the rate of the device's own link, `shared_bps`, that of its group's shared link
      or the least of its cells, and `fair_bps`, the least of these after each was divided by the
      number of transfers at the same time; in bits per second, NaN without a limit;
    - `part`, whose rate it shares: "all" the devices of the link, or, if the link has no rate, a
      cell, the outermost; empty if it shares none.
    """
    times = transfers[["began_at", "wait_s", "seconds"]].astype("float64")
    moves = transfers[np.isfinite(times.to_numpy()).all(axis=1)].reset_index(drop=True)
    moves[["wait_s", "seconds"]] = moves[["wait_s", "seconds"]].clip(lower=0.0)
    group_of = clients.set_index("client")["group"].astype("object")
    groups = moves["client"].map(group_of).fillna(_UNKNOWN)
    names = [*dict.fromkeys(group_of), _UNKNOWN]
    moves["group"] = pd.Categorical(groups, [name for name in names if name in set(groups)])
    moves["asked"] = moves["began_at"] - moves["began_at"].min()
    moves["began"] = moves["asked"] + moves["wait_s"]
    moves["ended"] = moves["began"] + moves["seconds"]
    shared = {name: link.shared.name or name for name, link in links.items()}
    moves["link"] = moves["group"].astype("object").map(lambda group: shared.get(group, group))
    return _with_rates(moves, links)


def moves_in(account: Account) -> pd.DataFrame:
    """`moves_of` a run."""
    return moves_of(account.transfers, account.clients, links_of(account.scenario))


def _with_rates(moves: pd.DataFrame, links: Mapping[str, GroupLinks]) -> pd.DataFrame:
    moves[["own_bps", "shared_bps", "fair_bps"]] = np.nan
    moves["part"] = ""
    known = moves[moves["group"].isin([*links])]
    group_of = dict(zip(known["client"], known["group"].astype("object"), strict=True))
    lines = {client: links[group].line_of(client) for client, group in group_of.items()}
    for (_, direction), rows in known.groupby(["link", "direction"], observed=True):
        way = str(direction)
        rates = {client: _bps(lines[client], way) for client in rows["client"].unique()}
        moves.loc[rows.index, "own_bps"] = rows["client"].map(rates).astype("float64")
        link = links[str(rows["group"].iloc[0])].shared
        inside: dict[str, list[str]] = defaultdict(list)
        for client in rates:
            for cell in link.path(lines[client].cell):
                inside[cell].append(client)
        # From the inside, so that the outermost part is entered last.
        for cell in sorted(inside, key=lambda each: -len(link.path(each))):
            in_cell = rows[rows["client"].isin(inside[cell])]
            _share(moves, in_cell, _bps(link.cells[cell], way), f"cell {cell}")
        _share(moves, rows, _bps(link, way), "all")
    return moves


def _share(moves: pd.DataFrame, rows: pd.DataFrame, bps: float, part: str) -> None:
    """Enter that transfers share a rate, which may be infinite, of a part of a link."""
    if math.isnan(bps):
        return
    bend = Bend.of(rows["began"].to_numpy(), rows["ended"].to_numpy())
    alone = bend.between(rows["began"], rows["ended"]) / rows["seconds"]
    at = rows.index
    moves.loc[at, "shared_bps"] = np.fmin(moves.loc[at, "shared_bps"], bps)
    moves.loc[at, "fair_bps"] = np.fmin(moves.loc[at, "fair_bps"], bps * alone.fillna(1.0))
    moves.loc[at, "part"] = part


def _bps(line: LinkModel | SharedPart, direction: str) -> float:
    return (line.down_bps if direction == "down" else line.up_bps) or np.nan


def _parts(moves: pd.DataFrame) -> Iterator["pd.Index[Any]"]:
    """Yield the labels of the transfers that share a rate in a direction."""
    shared = moves[moves["part"] != ""]
    for _, part in shared.groupby(["link", "part", "direction"], observed=True):
        yield part.index


# --- attribution ---------------------------------------------------------------------------------


def waited_for(
    moves: pd.DataFrame, links: Mapping[str, GroupLinks], by: str, of: Collection[str] | None = None
) -> pd.DataFrame:
    """Seconds of waiting, by the one who waited (rows) and the one waited for (columns).

    Every second of waiting is divided equally among the devices that transfer at that instant. If
    the group's slots have a queue and any other device of the group transfers, these are the
    devices of the group. Otherwise they are all devices of the fleet, because the server limits how
    many transfer at once. The column `NOBODY` holds the rest.

    Args:
        by: "client" or "group": the meaning of rows and columns.
        of: names to which the rows are limited; None for all.
    """
    begins, ends = moves["began"].to_numpy(float), moves["ended"].to_numpy(float)
    fleet, parts = Bend.of(begins, ends), []
    for group, waiting in moves.groupby("group", observed=True):
        rows = _only(waiting, by, of)
        link = links.get(str(group))
        if link is None or not link.queues:
            parts.append(_divided(rows, moves, fleet, by))
            continue
        own = (waiting["began"].to_numpy(float), waiting["ended"].to_numpy(float))
        slots = _divided(rows, waiting, Bend.of(*own), by)
        turn = _divided(rows, moves, fleet.without(*own), by)
        parts.append(slots.add(turn, fill_value=0.0))
    return _with_rest(parts, _sums(_only(moves, by, of), by, "wait_s"))


def slowed_by(moves: pd.DataFrame, by: str, of: Collection[str] | None = None) -> pd.DataFrame:
    """Seconds that transfers took longer than they would have alone, in the form of `waited_for`.

    A device that is alone has its own link and its group's whole shared link. If devices share a
    link, or a cell of one that has no rate itself, the extra seconds are attributed to the others
    that transferred in the same direction at the same time, in proportion to how long they did. The
    rest (`NOBODY`) is due to the link itself: it fades, and TCP has to start.
    """
    moves, parts = moves.assign(slow_s=slow_seconds(moves)), []
    for labels in _parts(moves):
        together = moves.loc[labels]
        parts.append(_in_proportion(_only(together, by, of), together, by))
    return _with_rest(parts, _sums(_only(moves, by, of), by, "slow_s"))


def slow_seconds(moves: pd.DataFrame) -> pd.Series:
    """The seconds that each transfer took longer than it would have alone; 0 without a limit."""
    alone = moves[["own_bps", "shared_bps"]].min(axis="columns")
    needed = 8 * moves["bytes"] / alone
    return (moves["seconds"] - needed).clip(lower=0.0).fillna(0.0)


def _divided(rows: pd.DataFrame, holders: pd.DataFrame, bend: Bend, by: str) -> pd.DataFrame:
    """Divide the waiting seconds of `rows` among `holders`, and sum them by the one who waited.

    Args:
        bend: the clock that runs at 1/k of the true pace while k of `holders` transfer.
    """
    spans = bend.at(rows["asked"].to_numpy(float)), bend.at(rows["began"].to_numpy(float))
    bent = holders.assign(
        began=bend.at(holders["began"].to_numpy(float)),
        ended=bend.at(holders["ended"].to_numpy(float)),
    )
    return _summed(_overlaps(rows, spans, bent, by), rows[by])


def _in_proportion(rows: pd.DataFrame, holders: pd.DataFrame, by: str) -> pd.DataFrame:
    """Divide `slow_s` of `rows` among `holders`, by how long each transferred at the same time."""
    spans = rows["began"].to_numpy(float), rows["ended"].to_numpy(float)
    overlaps = _overlaps(rows, spans, holders, by)
    total = overlaps.sum(axis="columns")
    return _summed(overlaps.mul(rows["slow_s"] / total.where(total > 0), axis="index"), rows[by])


def _overlaps(
    rows: pd.DataFrame, spans: tuple[Floats, Floats], holders: pd.DataFrame, by: str
) -> pd.DataFrame:
    """Seconds of each span that lie in transfers of others.

    The table has a row for each of `rows` and a column for each client or group. A device's own
    transfers do not count.
    """
    seconds = {
        str(name): _between(part, *spans) for name, part in holders.groupby(by, observed=True)
    }
    found = pd.DataFrame(seconds, rows.index)
    by_client = holders.groupby("client", observed=True).indices
    codes = {str(name): place for place, name in enumerate(found.columns)}
    cells = found.to_numpy(copy=True)
    for client, places in rows.groupby("client", observed=True).indices.items():
        if client not in by_client:
            continue
        mine = _between(holders.iloc[by_client[client]], spans[0][places], spans[1][places])
        columns = rows[by].astype("object").iloc[places].map(codes)
        cells[places, columns.to_numpy(int)] -= mine
    return pd.DataFrame(np.maximum(cells, 0.0), found.index, found.columns)


def _between(holders: pd.DataFrame, begins: Floats, ends: Floats) -> Floats:
    there = Overlaps(holders["began"].to_numpy(float), holders["ended"].to_numpy(float))
    return there.between(begins, ends)


def _only(moves: pd.DataFrame, by: str, of: Collection[str] | None) -> pd.DataFrame:
    return moves if of is None else moves[moves[by].isin(list(of))]


def _summed(seconds: pd.DataFrame, names: pd.Series) -> pd.DataFrame:
    return seconds.groupby(names.astype("object")).sum()


def _sums(rows: pd.DataFrame, by: str, column: str) -> pd.Series:
    return rows.groupby(rows[by].astype("object"), sort=False)[column].sum()


def _with_rest(parts: list[pd.DataFrame], totals: pd.Series) -> pd.DataFrame:
    """Concatenate the parts in the order of `totals`, and add the column NOBODY for the rest."""
    filled = [part for part in parts if not part.empty]
    table = pd.concat(filled) if filled else pd.DataFrame(index=totals.index[:0])
    table = table.groupby(level=0).sum().reindex(totals.index).fillna(0.0)
    rest = (totals - table.sum(axis="columns")).clip(lower=0.0).rename(NOBODY)
    return pd.concat([table, rest], axis="columns")


# --- totals --------------------------------------------------------------------------------------


def totals_of(moves: pd.DataFrame, rounds: pd.DataFrame) -> pd.DataFrame:
    """A row for every group and direction: bytes, times and rates of its transfers.

    `waiting` and `transferring` are shares of the duration of the rounds in which the group's
    devices transferred.
    """
    round_s = moves["round"].map(rounds.set_index("round")["seconds"])
    timed = moves.assign(
        round_s=round_s.where(~moves.duplicated(["client", "round", "direction"])),
        moved_s=moves["seconds"].where(moves["bytes"] > 0),
    )
    rows = timed.groupby(["group", "direction"], observed=True)
    table = pd.DataFrame(
        {
            "transfers": rows.size(),
            "bytes": rows["bytes"].sum(),
            "median_s": rows["moved_s"].median(),
            "p90_s": rows["moved_s"].quantile(0.9),
            "median_wait_s": rows["wait_s"].median(),
            "rate_bps": rows["rate_bps"].median(),
            "own_bps": rows["own_bps"].median(),
            "shared_bps": rows["shared_bps"].median(),
            "fair_bps": rows["fair_bps"].median(),
        }
    )
    in_rounds = timed[timed["round"].isin(rounds["round"])]
    sums = in_rounds.groupby(["group", "direction"], observed=True)[
        ["wait_s", "seconds", "round_s"]
    ].sum()
    lasted = sums["round_s"].where(sums["round_s"] > 0)
    table["waiting"] = sums["wait_s"] / lasted
    table["transferring"] = sums["seconds"] / lasted
    return table.reset_index()


def rate_text(bps: float) -> str:
    """For example "750 kbit/s"; a dash if the rate is not finite."""
    if not np.isfinite(bps):
        return "–"
    size, unit = rate_unit(bps)
    return f"{bps / size:.3g} {unit}"


def rate_unit(most: float) -> tuple[float, str]:
    """The size in bits per second and the name of a unit that suits rates up to `most`."""
    for size, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        # With three digits, 999.6 kbit/s would be written as 1e+03.
        if most >= 0.9995 * size:
            return size, unit
    return 1.0, "bit/s"
