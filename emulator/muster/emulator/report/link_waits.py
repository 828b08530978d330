"""The figure of when the devices of a round waited and transferred: a bar for every transfer."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean, seconds_text
from muster.emulator.report import style
from muster.emulator.report.links import moves_in
from muster.emulator.report.names import drawable
from muster.emulator.report.timeline import key, nothing

GROUP_COLOURS = (
    style.BLUE,
    style.ORANGE,
    style.GREEN,
    "#cc79a7",
    style.AMBER,
    "#332288",
    "#7fc4ee",
    "#8c3a00",
)
"""The colours of groups, in the order of the population; further groups are grey."""

MOST_DEVICES = 40
"""The most rows in the panel of a round."""

_ROW_IN, _LOWEST_IN, _AROUND_IN, _KEY_IN = 0.135, 0.9, 1.05, 0.35
_PALE = 0.72  # the share of white in a pale colour


def waits(account: Account) -> Figure:
    """The slowest round and the median one: when each device waited and transferred."""
    moves = moves_in(account)
    rounds = account.rounds[account.rounds["round"].isin(moves["round"])]
    rounds = rounds[rounds[["opened_at", "seconds"]].notna().all(axis="columns")]
    if rounds.empty:
        return nothing("No transfer", "Nothing was transferred in chunks.")
    chosen = _rounds_to_show(rounds)
    parts = [_longest(moves[moves["round"] == number]) for number in chosen]
    counts = [part["client"].nunique() for part in parts]
    heights = [max(_ROW_IN * count, _LOWEST_IN) for count in counts]
    figure = style.new_figure(sum(heights) + _AROUND_IN * len(parts) + _KEY_IN)
    all_axes = figure.subplots(len(parts), squeeze=False, height_ratios=heights)[:, 0]
    colours = group_colours(list(moves["group"].cat.categories))
    first_at = float((moves["began_at"] - moves["asked"]).iloc[0])
    for axes, part, (number, what) in zip(all_axes, parts, chosen.items(), strict=True):
        row = rounds[rounds["round"] == number].iloc[0]
        _gantt(axes, part, colours, row["opened_at"] - first_at, row["seconds"])
        devices = moves.loc[moves["round"] == number, "client"].nunique()
        finding = f"Round {number}, {what}: {seconds_text(row['seconds'])}"
        style.tidy(axes, f"{finding}; {_spent(moves[moves['round'] == number])}")
        axes.grid(axis="x", color=style.GRID, linewidth=0.8)
        axes.grid(visible=False, axis="y")
        left_out = devices - part["client"].nunique()
        more = f" (the {MOST_DEVICES} of {devices} devices that took longest)" if left_out else ""
        axes.set_xlabel(f"seconds since the round opened{more}")
    drawn = pd.concat(parts)
    _waits_key(figure, colours, drawn)
    return figure


def _rounds_to_show(rounds: pd.DataFrame) -> dict[int, str]:
    """The slowest and the median round, with these words."""
    ordered = rounds.sort_values("seconds", kind="stable")["round"].to_list()
    if len(ordered) == 1:
        return {ordered[0]: "the only one"}
    return {ordered[-1]: "the slowest", ordered[(len(ordered) - 1) // 2]: "the median"}


def _longest(moves: pd.DataFrame) -> pd.DataFrame:
    """The transfers of the devices that spent most time waiting and transferring."""
    spent = (moves["wait_s"] + moves["seconds"]).groupby(moves["client"]).sum()
    longest = spent.sort_values(ascending=False, kind="stable").index[:MOST_DEVICES]
    return moves[moves["client"].isin(longest)]


def _gantt(
    axes: Axes, moves: pd.DataFrame, colours: Mapping[str, str], opened: float, lasted: float
) -> None:
    """Draw a row for each device: pale while it waits, full while it transfers.

    Transfers of updates are hatched.
    """
    order = moves.groupby(["group", "client"], observed=True)["ended"].max()
    clients = order.reset_index().sort_values(["group", "ended"], kind="stable")["client"].to_list()
    places = {client: place for place, client in enumerate(clients)}
    for (group, way), part in moves.groupby(["group", "direction"], observed=True):
        rows, colour = part["client"].map(places), colours[str(group)]
        asked, began = part["asked"] - opened, part["began"] - opened
        axes.barh(rows, part["wait_s"], 0.78, asked, color=_pale(colour), linewidth=0)
        axes.barh(rows, part["seconds"], 0.78, began, color=colour, linewidth=0,
                  hatch=_hatch(str(way)), edgecolor="white")  # fmt: skip
    axes.axvline(lasted, color=style.INK, linewidth=1.2, linestyle="--")
    left = min(0.0, float((moves["asked"] - opened).min()))
    right = max(lasted, float((moves["ended"] - opened).max()))
    axes.set(xlim=(left, right + 0.01 * (right - left)), ylim=(len(clients) - 0.4, -0.6))
    axes.set_yticks(range(len(clients)), [drawable(clean(name), 18) for name in clients],
                    parse_math=False)  # fmt: skip
    axes.tick_params(axis="y", labelsize=6.5)


def _spent(moves: pd.DataFrame) -> str:
    waited, moved = moves["wait_s"].sum(), moves["seconds"].sum()
    return f"devices waited {seconds_text(waited)} and transferred {seconds_text(moved)} in all"


def _waits_key(figure: Figure, colours: Mapping[str, str], moves: pd.DataFrame) -> None:
    there = [name for name in colours if (moves["group"] == name).any()]
    named = [Patch(facecolor=colours[name], label=f" {drawable(clean(name))}")
             for name in there[: len(GROUP_COLOURS)]]  # fmt: skip
    if len(there) > len(named):
        named.append(Patch(facecolor=style.MUTED, label="other groups"))
    grey = style.MUTED
    meanings = [
        Patch(facecolor=_pale(grey), label="waits"),
        Patch(facecolor=grey, label="model down"),
        Patch(facecolor=grey, edgecolor="white", linewidth=0, hatch=_hatch("up"),
              label="update up"),
        Line2D([], [], color=style.INK, linewidth=1.2, linestyle="--", label="round closed"),
    ]  # fmt: skip
    key(figure, [*named, *meanings])
    for entry in figure.legends[0].get_texts():
        entry.set_parse_math(False)


def _hatch(direction: str) -> str:
    return "/////" if direction == "up" else ""


def _pale(colour: str) -> tuple[float, float, float]:
    red, green, blue = (_PALE + (1 - _PALE) * part for part in to_rgb(colour))
    return red, green, blue


def group_colours(groups: Sequence[str]) -> dict[str, str]:
    more = [style.MUTED] * (len(groups) - len(GROUP_COLOURS))
    return dict(zip(map(str, groups), (*GROUP_COLOURS, *more), strict=False))
