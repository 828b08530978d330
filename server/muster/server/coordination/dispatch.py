"""Dispatch: selects the devices of a round and sends the messages that call them."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from muster.common import seeds
from muster.common.exchange import Body, Call, Key
from muster.common.masks import Mask
from muster.server.account.ledger import Ledger
from muster.server.aggregation.strategy_rounds import instructions_of
from muster.server.aggregation.versions import ModelVersions
from muster.server.fleet.devices import ConnectedPack, EnrolledDevice
from muster.server.fleet.failures import Failures
from muster.server.fleet.fleet import Fleet
from muster.server.rounds.candidates import candidates_of, choose
from muster.server.rounds.round import Round
from muster.server.rounds.selection import Selection, SelectNamed
from muster.server.settings.process import ServerProcess
from muster.server.strategy.driver import StrategyDriver
from muster.server.updates.partial_sums import WantedSum
from muster.server.updates.receiver import UpdateReceiver
from muster.server.updates.round_updates import PendingUpdate


class Dispatch:
    """Selects the cohort of a round and calls its devices.

    Args:
        inline: models are small enough to travel inside calls.
        failures: the devices that are left out because their training fails.
        strategy: chooses the devices in place of the scenario's selection; None: none does.
    """

    def __init__(
        self,
        config: ServerProcess,
        fleet: Fleet,
        receiver: UpdateReceiver,
        versions: ModelVersions,
        inline: bool,
        failures: Failures,
        strategy: StrategyDriver | None = None,
    ) -> None:
        self._failures = failures
        self._config = config
        self._lockstep = config.lockstep
        self._fleet = fleet
        self._receiver = receiver
        self._versions = versions
        self._inline = inline
        self._strategy = strategy
        self._clients = [member.client for member in config.population]
        self._instructions: dict[str, bytes] = {}  # of the strategy, by client
        # Over an emulated link even a small model travels outside the calls, because it would delay
        # them.
        self._linked_groups = frozenset(config.shared)
        self._called = Counter[str]()
        rule = config.server.aggregator
        self._tells_counted = rule.control or rule.announces
        self._retains_models = rule.announces and rule.retains() == "model"
        # By client, the round of the call for its newest update that counted, for devices that keep
        # control variates or compute their part in the model.
        self._counted = dict[str, int]()

    def load(self, ledger: Ledger) -> None:
        """Load which updates have counted."""
        if self._tells_counted:
            self._counted = ledger.counted_rounds()

    def enter_counted(self, counted: Iterable[PendingUpdate]) -> None:
        """Enter the updates that count in a round that has closed."""
        if self._tells_counted:
            for update in counted:
                self._counted[update.update.key.client] = update.update.key.round

    def select(self, round: Round) -> None:
        """Select the cohort of a round. In lockstep the round waits for selected devices that are
        not connected."""
        server = self._config.server
        draws = partial(seeds.stream, self._config.seed, "selection", round.number)
        selection = server.selection if self._strategy is None else self._named(self._strategy)
        devices = {device.client: device for device in self._reachable()}

        def usual(clients: Collection[str]) -> Sequence[str]:
            there = [device for client, device in devices.items() if client in clients]
            return choose(round, there, server.mode, selection, draws)

        round.select(round.rules.life.selected(round.number, devices.keys(), usual))
        self._count_by_group(round)

    def _named(self, strategy: StrategyDriver) -> Selection:
        """The devices that the strategy wants in this round."""
        assert strategy.push is not None
        self._instructions = instructions_of(strategy.push, self._clients)
        return SelectNamed(kind="named", clients=frozenset(self._instructions))

    def is_idle(self, round: Round) -> bool:
        """Whether a round would have nobody to wait for, on clocks on which devices come back by
        themselves. In the synchronous mode such a round is recorded as empty."""
        if self._lockstep or not round.rules.outlives_round or round.has_work():
            return False
        return not candidates_of(round, self._reachable())

    def _reachable(self) -> list[EnrolledDevice]:
        """The devices that can be called; in lockstep, a round waits for those that are away."""
        left_out, devices = self._failures.left_out, self._fleet.devices.values()
        return [
            device
            for device in devices
            if (self._lockstep or device.present) and device.client not in left_out
        ]

    def _count_by_group(self, round: Round) -> None:
        """Count the devices of every group that are called, because a gateway that grants slots
        waits for that many answers."""
        if self._linked_groups:
            called = (self._fleet.devices[client] for client in round.own())
            self._called = Counter(d.group for d in called if d.away_until < round.step)

    def call(self, clients: Iterable[str]) -> None:
        """Call those of the clients that are connected and that the open round still expects."""
        round = self._receiver.round
        if round is None:
            return
        formats = self._receiver.formats
        # The calls of a message are of one round, so that they have one step, and one model or the
        # same part of it.
        calls = defaultdict[tuple[ConnectedPack, int, Mask | None], list[Call]](list)
        bodies: dict[bytes, Body] = {}  # by checksum
        known_away, weights = [], self._announced()
        for client in clients:
            if not round.expects(client):
                continue
            device = self._fleet.devices[client]
            if device.away_until >= round.step:
                known_away.append(client)
            elif (pack := device.pack) is not None and pack.outbox is not None:
                key = round.call(client)
                part = formats.slice_of(key) if formats.masked else None
                download = self._versions.download(round.cohort[client].base_version, part)
                bodies[download.checksum] = download.body
                call = self._call_of(round, key, download.checksum, weights)
                calls[pack, key.round, part].append(call)
        for (pack, *_), together in calls.items():
            inline = self._inline and pack.group not in self._linked_groups
            body = bodies[together[0].model_checksum] if inline else None
            sent = pack.send(self._versions.committed, together, body)
            if sent:
                round.sent(together[0].key.client, sent)
        self._receiver.decline_known_away(known_away)

    def _call_of(
        self, round: Round, key: Key, model_checksum: bytes, weights: Mapping[str, float]
    ) -> Call:
        """The call of a member of the cohort under a key.

        Args:
            model_checksum: of what the device downloads.
            weights: what `_announced` returns.
        """
        client, member = key.client, round.cohort[key.client]
        return Call(
            key,
            member.base_version,
            round.rules.open_s(self._config.server.deadline_s) or 0.0,
            model_checksum,
            self._called[self._fleet.devices[client].group],
            member.step,
            self._counted.get(client, 0),
            weights.get(client),
            self._retains_models,
            self._instructions.get(client, b""),
        )

    def ask_for_sum(self, pack: ConnectedPack, wanted: WantedSum, again: bool) -> None:
        """Ask a pack for a sum of the updates that it holds. If it is asked again, it may have lost
        them, and trains again for the same calls."""
        round, weights = self._receiver.round, self._announced()
        assert round is not None  # sums are asked for before the round ends
        keys = [update.update.key for update in wanted.updates]
        slices = map(self._receiver.formats.slice_of, keys)
        downloads = [
            self._versions.download(round.cohort[key.client].base_version, part)
            for key, part in zip(keys, slices, strict=True)
        ]
        calls = [
            self._call_of(round, key, download.checksum, weights)
            for key, download in zip(keys, downloads, strict=True)
        ]
        inline = again and self._inline and not self.bulk(pack)
        model = downloads[0].body if inline else None
        if sent := pack.ask_for_sum(wanted.number, calls, wanted.weights, model, wanted.step):
            round.sent(keys[0].client, sent)

    def _announced(self) -> dict[str, float]:
        """The weights of the newest version that the aggregator announces, by client."""
        if not self._config.server.aggregator.announces:
            return {}
        devices = self._fleet.devices
        rule, state = self._config.server.aggregator, self._versions.state
        weights = rule.announced(state, len(devices))
        return dict(zip(devices, weights.tolist(), strict=True))

    def part_for(self, pack: ConnectedPack, client: str, number: int) -> Mask | None:
        """The coordinates that a device of a pack downloads for its open call; None: the whole
        model.

        Args:
            number: the round of the call.

        Raises:
            KeyError: the group's devices download parts of the model, and this call is not open.
        """
        formats, round = self._receiver.formats, self._receiver.round
        if not formats.narrow(pack.group):
            return None
        if round is None or client not in pack.devices or round.cohort[client].round != number:
            raise KeyError(client)
        return formats.slice_of(Key(client, number, 0))

    def bulk(self, pack: ConnectedPack) -> bool:
        """Whether models and updates of a pack travel outside Attend, even small ones."""
        return pack.group in self._linked_groups
