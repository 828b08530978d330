"""Links that devices share, in the modes in which updates may outlive their round, in lockstep.

The duration of a transfer depends on the transfers at the same time, and some of these belong to
calls that come later. Nevertheless it is known which updates count. Work begins only when a round
opens; so when a round closes, everything up to the opening of the next one follows from the work
that is known, and no later call can change it (`FluidLink`: nothing that begins at a moment changes
anything before it). The modes let only updates count that end before the next round opens: in the
buffered mode it opens at the end of the last of them, and the opportunistic mode is refused if its
rounds take updates for longer than `clock.round_s`. All other ends are computed again when the next
round closes.
"""

import math
from collections.abc import Collection, Iterable, Mapping

from muster.common.errors import RunFailed
from muster.common.fluid import FluidLink, Stage, Work
from muster.common.lines import LinkModel
from muster.common.shared_lines import BegunWork, SharedLine
from muster.server.account.run_rows import SharedWorkRow
from muster.server.account.transaction import EndedWork
from muster.server.coordination.shared_links import (
    SharedLinkModel,
    SharedLinks,
    begun_work,
    links_by_name,
)
from muster.server.fleet.devices import EnrolledDevice
from muster.server.rounds.cohort import WorkTime, times_alone
from muster.server.rounds.modes import Mode
from muster.server.rounds.round import Round
from muster.server.rounds.rules import Sharing


class SharedFlows(SharedLinks):
    """The transfers over all shared links that have a rate.

    Args:
        shared: the shared link of each group that has one.
        devices: all devices, by client. `busy_until_s` of those that share a link is kept here.
        sizes: the largest bodies that travel down and up for a call, in bytes, by group.
        step_s: scenario seconds of a step of the devices' lives.
    """

    def __init__(
        self,
        shared: Mapping[str, SharedLine],
        devices: Mapping[str, EnrolledDevice],
        sizes: Mapping[str, tuple[float, float]],
        step_s: float = 1.0,
    ) -> None:
        self._devices = devices
        self._step_s = step_s
        found = links_by_name(shared)
        self._links = {
            name: FluidLink(line, *_devices_of(devices, groups, sizes))
            for name, (line, groups) in found.items()
        }
        self._link_of = {group: name for name, (_, groups) in found.items() for group in groups}
        self._open: set[str] = set()
        self._changed: list[SharedWorkRow] = []
        self._predicted: tuple[Mapping[str, WorkTime], Mapping[str, WorkTime]] = {}, {}

    @property
    def delays(self) -> bool:
        return bool(self._links)

    def sharing_of(self, number: int) -> Sharing:
        return self._times

    def _times(self, alone: Mapping[str, WorkTime]) -> Mapping[str, WorkTime]:
        if alone != self._predicted[0]:
            self._predicted = dict(alone), self._predict(alone)
        return self._predicted[1]

    def _predict(self, alone: Mapping[str, WorkTime]) -> dict[str, WorkTime]:
        found = dict(alone)
        for name, link in self._links.items():
            of_link = self._of_link(name, alone)
            ends = link.predicted(self._beginning(link, of_link))
            for client, time in of_link.items():
                seconds = ends[client] - time.begun_s
                found[client] = time._replace(modelled_s=seconds, end_s=ends[client])
        return found

    def settle(self, round: Round, next_s: float) -> None:
        """Begin the work of the devices that a round has called, and play the links up to the
        opening of the next one.

        Raises:
            RunFailed: an update counts that ends after the next round opens.
        """
        if not self._links:
            return
        times = self._times(alone := times_alone(round.cohort))
        for client in round.counted():
            if times[client].end_s > next_s:
                raise RunFailed(
                    f"the update of {client} counts in round {round.number} and ends at scenario "
                    f"second {times[client].end_s:g}, but the next round opens at {next_s:g} and "
                    f"could delay it over the shared link; expected a mode whose rounds open after "
                    f"the ends of the updates that count"
                )
        for name, link in self._links.items():
            of_link = self._of_link(name, alone)
            for client, (number, work) in self._beginning(link, of_link).items():
                link.begin(client, number, work)
                self._open.add(client)
            link.play(next_s)
            self._note(link, sorted(self._open & link.work().keys()))

    def _of_link(self, name: str, alone: Mapping[str, WorkTime]) -> dict[str, WorkTime]:
        """The work of the devices that share a link."""
        return {c: t for c, t in alone.items() if self._link_of.get(self._devices[c].group) == name}

    def _beginning(
        self, link: FluidLink, alone: Mapping[str, WorkTime]
    ) -> dict[str, tuple[int, BegunWork]]:
        """Round and work of the devices that begin now."""
        known = link.work()
        return {
            client: (time.round, begun_work(time, self._step_s))
            for client, time in alone.items()
            if client not in known or known[client].round != time.round
        }

    def _note(self, link: FluidLink, clients: Iterable[str]) -> None:
        """Note how far the work of these devices is, and until when they are busy."""
        found = link.work()
        for client in clients:
            work = found[client]
            self._changed.append(SharedWorkRow(client, *work))
            self._devices[client].busy_until_s = _busy_until_s(work)
            if work.stage is Stage.ENDED:
                self._open.remove(client)

    def changed(self) -> tuple[list[SharedWorkRow], list[EndedWork]]:
        rows, self._changed = self._changed, []
        ended = [row for row in rows if row.stage is Stage.ENDED]
        return rows, [EndedWork(row.at_s, row.round, row.client) for row in ended]

    def load(self, rows: Iterable[SharedWorkRow], now_s: float) -> None:
        of_link: dict[str, dict[str, Work]] = {name: {} for name in self._links}
        for client, round, train_s, stage, at_s, left_bits in rows:
            device, work = (
                self._devices[client],
                Work(round, train_s, Stage(stage), at_s, left_bits),
            )
            of_link[self._link_of[device.group]][client] = work
            device.busy_until_s = _busy_until_s(work)
            if work.stage is not Stage.ENDED:
                self._open.add(client)
        for name, work_of in of_link.items():
            self._links[name].restore(work_of, now_s)


def _devices_of(
    devices: Mapping[str, EnrolledDevice],
    groups: Collection[str],
    sizes: Mapping[str, tuple[float, float]],
) -> tuple[dict[str, LinkModel], dict[str, tuple[float, float]]]:
    """The links and the traffic of the devices of some groups."""
    found = {client: device for client, device in devices.items() if device.group in groups}
    lines = {client: device.line for client, device in found.items()}
    return lines, {client: sizes[device.group] for client, device in found.items()}


def _busy_until_s(work: Work) -> float:
    return work.at_s if work.stage is Stage.ENDED else math.inf


def links_of(
    mode: Mode,
    shared: Mapping[str, SharedLine],
    devices: Mapping[str, EnrolledDevice],
    seed: int,
    sizes: Mapping[str, tuple[float, float]],
    step_s: float,
) -> SharedLinks:
    """The model of the shared links.

    Args:
        shared: the shared link of each group that has one.
        sizes: the largest bodies that travel down and up for a call, in bytes, by group.
        step_s: scenario seconds of a step of the devices' lives.
    """
    if mode.outlives_round():
        return SharedFlows(shared, devices, sizes, step_s)
    return SharedLinkModel(shared, devices, seed, sizes, step_s)
