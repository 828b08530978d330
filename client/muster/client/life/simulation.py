"""The simulation of devices, step by step: their state, and how they respond to calls.

There is no I/O and no clock here. Arrays of shape (n,) hold all devices of a process or of a plan.
Both use the same code with the same draws, so a plan tells what a run will do.

The row of a device is the only state that depends on what the device did: the values of STATE at
the beginning of a step. The row before a round is kept, so that nothing drains twice.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from muster.client.availability import DeviceBatch
from muster.client.availability.logistic import Logit
from muster.client.faults.life_effects import LifeEffects
from muster.client.life.battery import charge_after, work_drain
from muster.client.life.covariates import Observed
from muster.client.life.device_settings import Battery
from muster.client.life.effort import Effort
from muster.client.life.foresight import Foresight
from muster.client.life.participation import REQUIREMENTS
from muster.client.life.settings import Life, SimulatedDevice
from muster.client.life.states import CODE, Decided, Look, Row
from muster.client.life.surroundings import DeviceSurroundings
from muster.common.distributions import draw
from muster.common.exchange import PROPENSITY, DeviceState, Reason
from muster.common.seeds import BoolArray, FloatArray, IntArray, normals

STATE: Final = ("charge", "forced_until_s", "dead", "recent")
"""Columns of a state row:

- charge: as a share of the full battery;
- forced_until_s: scenario seconds until which the device charges because its battery was low;
- dead: 1 from the moment the battery ran out until it is charged to `revives_at`;
- recent: moving average of the device's participation.
"""

_CHARGE, _FORCED_UNTIL, _DEAD, _RECENT = range(len(STATE))

_MEMORY = 0.9
"""Share of `recent` that is kept from one step to the next."""


class DeviceSimulation:
    """The simulation of some devices of one group.

    Args:
        ahead: number of steps for which random numbers are drawn at once. A plan knows how many it
            needs.
    """

    def __init__(
        self, life: Life, seed: int, devices: Sequence[SimulatedDevice], ahead: int = 64
    ) -> None:
        n = len(devices)
        columns = devices[0].z
        self.cast = DeviceBatch(
            seed=seed,
            group=life.group,
            clients=[device.client for device in devices],
            positions=np.array([device.position for device in devices]),
            size=life.size,
            z={name: np.array([device.z[name] for device in devices]) for name in columns},
            step_s=life.step_s,
            start_h=life.start_h,
            zone_h=np.array([device.zone_h for device in devices]),
            ahead=ahead,
        )
        self.life = life
        self.process = life.availability.process(self.cast)
        self._surroundings = DeviceSurroundings(self.cast, life.device)
        self._x = Observed(life.covariates, seed, self.cast.clients, ahead)
        self._effects = LifeEffects(life.faults, self.cast.clients)
        self._foresight = Foresight(life, self.cast, self._surroundings, self._effects)
        self._forced = self.cast.numbers("forced", width=3, every_s=self._foresight.tick_s)
        self._will = self.cast.numbers("willing")
        self._luck = self.cast.numbers("drop-out", width=2)
        varies = life.device.speed_sigma > 0
        self._pace = self.cast.numbers("pace", width=2) if varies else None
        self._seen: tuple[int, Look] | None = None
        self._present: Row = ()  # from which `foresee` has looked ahead
        self._at = np.zeros(n, dtype=np.int64)
        self._state = np.zeros((n, len(STATE)))
        self._state[:, _CHARGE] = 1.0
        if (battery := life.device.battery) is not None:
            self._capacity_mah = _capacities(battery, devices)
            given = [device.charge for device in devices if device.charge is not None]
            charge = given or draw(battery.initial, self.cast.numbers("charge", width=2).at(0))
            self._state[:, _CHARGE] = np.clip(charge, 0.0, 1.0)
            self._state[:, _DEAD] = self._state[:, _CHARGE] <= 0

    def row(self, i: int) -> Row:
        """The row of device `i`, to be remembered: its step and the values of STATE."""
        return (float(self._at[i]), *map(float, self._state[i]))

    def settle(self, i: int, row: Row) -> None:
        """Put device `i` back to the state of an earlier `row`."""
        self._at[i], self._state[i] = int(row[0]), row[1:]
        self._seen = None
        self._present = ()

    # --- time ------------------------------------------------------------------------------------

    def advance(self, step: int) -> None:
        """Advance all devices to the beginning of `step`."""
        if self._present and self._at[0] > step:  # it is called at a step that was looked at
            self.settle(0, self._present)
        while (behind := int(self._at.min())) < step:
            together = behind == self._at.max()  # usual
            rows = slice(None) if together else np.flatnonzero(self._at == behind)
            self._advance_rows(rows, behind)
            self._seen = None

    def _advance_rows(self, rows: slice | IntArray, step: int) -> None:
        """Advance the devices `rows` by one step."""
        battery = self.life.device.battery
        self._state[rows, _RECENT] *= _MEMORY
        if battery is not None:
            ticks = self._foresight.ticks
            for tick in range(step * ticks, (step + 1) * ticks):
                self._tick(rows, tick)
        self._at[rows] += 1

    def _tick(self, rows: slice | IntArray, tick: int) -> None:
        battery, charging = self.life.device.battery, self.life.device.charging
        assert battery is not None
        tick_s = self._foresight.tick_s
        state, time_s = self._state[rows], tick * tick_s
        charge = state[:, _CHARGE]
        plugged, idle = (habit[rows] for habit in self._foresight.habits(tick))
        plugged = plugged | (state[:, _FORCED_UNTIL] > time_s)
        effects = self._effects.at(tick // self._foresight.ticks)
        empty = ~plugged & (charge < charging.forced_below)
        if empty.any():
            found, *normal = self._forced.at(tick)[rows].T
            within = 1 - (1 - charging.forced_probability) ** (tick_s / 3600)
            forced = empty & (found < within)
            drawn, _ = normals(*(numbers[forced] for numbers in normal))
            lasts = charging.top_up_s * np.exp(charging.top_up_sigma * drawn)
            state[forced, _FORCED_UNTIL] = time_s + lasts
            plugged |= forced
        if effects is not None:
            plugged = plugged & ~effects.unplugged[rows]
        # Nobody uses a device that is off, whatever was drawn.
        idle = idle | (state[:, _DEAD] > 0)
        charge = charge_after(battery, self._capacity_mah[rows], charge, tick_s, plugged, idle)
        if effects is not None:
            charge = np.maximum(charge - effects.drain_per_h[rows] * tick_s / 3600, 0.0)
        state[:, _CHARGE] = charge
        state[:, _DEAD] = (charge <= 0) | ((state[:, _DEAD] > 0) & (charge < battery.revives_at))
        self._state[rows] = state

    # --- observation -----------------------------------------------------------------------------

    def look(self, step: int) -> Look:
        """The look of all devices at the beginning of a step."""
        self.advance(step)
        if self._seen is None or self._seen[0] != step:
            self._seen = (step, self._look(step))
        return self._seen[1]

    def _look(self, step: int) -> Look:
        begins = self._foresight.beginning(step)
        plugged, idle = self._foresight.habits(step * self._foresight.ticks)
        charge, dead = self._state[:, _CHARGE].copy(), self._state[:, _DEAD] > 0
        charging = plugged | (self._state[:, _FORCED_UNTIL] > step * self.life.step_s)
        effects = self._effects.at(step)
        if effects is not None:
            charging = charging & ~effects.unplugged
        x = self._observed(step, charge, charging, idle) if self.life.covariates.x else {}
        available = begins.available
        if available is None:
            available = self.process.on(self.cast.scene(step, x))
            if effects is not None:
                available = available & ~effects.offline
        look = Look(
            charge,
            charging,
            idle,
            begins.network,
            begins.unmetered,
            begins.hour,
            dead,
            available & ~dead,
            x,
            self.life.device.lives,
        )
        if self.life.tells_propensity:
            look = replace(look, x={**x, PROPENSITY: self._chance(step, look)})
        return look

    def _observed(
        self, step: int, charge: FloatArray, charging: BoolArray, idle: BoolArray
    ) -> dict[str, FloatArray]:
        """Covariates X at the beginning of a step."""
        begins = self._foresight.beginning(step)
        angle = 2 * np.pi * begins.hour / 24
        quantities = {
            "battery": charge,
            "charging": charging.astype(np.float64),
            "unmetered": begins.unmetered.astype(np.float64),
            "idle": idle.astype(np.float64),
            "hour_sin": np.sin(angle),
            "hour_cos": np.cos(angle),
            "recent": self._state[:, _RECENT].copy(),
        }
        return self._x.at(step, quantities)

    def unreachable(self, step: int) -> BoolArray | None:
        """Whether each device is offline at the beginning of a step, shape (n,).

        None if that depends on the devices' state, or if a device reports more than being offline.
        """
        life = self.life
        if life.device.lives or life.covariates.x or life.tells_propensity:
            return None
        available = self._foresight.beginning(step).available
        return None if available is None else ~available

    def away_steps(self, step: int) -> IntArray | None:
        """Number of further steps for which each device is offline, as far as is foreseen.

        None if `unreachable` is None.
        """
        return None if self.unreachable(step) is None else self._foresight.away_steps(step)

    def foresee(self, step: int) -> list[tuple[DeviceState | None, tuple[float, ...]]]:
        """What the only device of this simulation will report at the steps after this one at which
        it is certainly offline, one after the other: its state and its covariates X.

        Nothing that the device does can change them, because it cannot be called. Its simulated
        state goes on to the last of these steps, and comes back if it is called earlier.
        """
        later = self._foresight.away_steps(step)
        self.advance(step)
        present, foreseen = self.row(0), []
        for ahead in range(step + 1, step + 1 + (0 if later is None else int(later[0]))):
            look = self.look(ahead)
            if look.dead[0]:  # being off comes before being offline
                break
            foreseen.append((look.state(0), look.covariates(0)))
        self._present = present
        return foreseen

    def _conditions(self, times: FloatArray) -> dict[str, BoolArray]:
        """The conditions that a scenario can require, at `times`: one instant for every device."""
        around = self._surroundings
        charging = np.ones(len(times), dtype=np.bool_)
        if self.life.device.battery is not None:
            charging = around.plugged(times) | (self._state[:, _FORCED_UNTIL] > times)
        unmetered = around.unmetered(around.network(times))
        charging, unmetered = self._disturbed(times, charging, unmetered)
        return {"charging": charging, "unmetered": unmetered, "idle": around.idle(times)}

    def _disturbed(
        self, times: FloatArray, charging: BoolArray, unmetered: BoolArray
    ) -> tuple[BoolArray, BoolArray]:
        """Whether devices charge and are on free networks, after the faults of these instants."""
        steps = (times // self.life.step_s).astype(np.int64)
        for step in np.unique(steps):
            if (effects := self._effects.at(int(step))) is not None:
                there = steps == step
                charging = charging & ~(there & effects.unplugged)
                unmetered = unmetered & ~(there & effects.metered)
        return charging, unmetered

    # --- a call ----------------------------------------------------------------------------------

    def slowdown(self, step: int) -> FloatArray | None:
        """The factor of each device's modelled training in a step, shape (n,); None: 1 for all."""
        effects = self._effects.at(step)
        factor = None if effects is None else effects.slowdown
        if self._pace is None:
            return factor
        drawn, _ = normals(*self._pace.at(step).T)
        varied: FloatArray = np.exp(self.life.device.speed_sigma * drawn)
        return varied if factor is None else varied * factor

    def effort_at(self, step: int, effort: Effort) -> Effort:
        """The effort of work that begins with a step, at the pace of its devices in it."""
        factor = self.slowdown(step)
        slowed = effort if factor is None else effort.slowed(factor)
        return slowed.at(step * self.cast.step_s)

    def decide(self, step: int, effort: Effort) -> Decided:
        """Decide what every device would do if it were called at the beginning of a step."""
        look, rules = self.look(step), self.life.participation
        state = {"charging": look.charging, "unmetered": look.unmetered, "idle": look.idle}
        code = np.zeros(effort.devices, dtype=np.int64)

        def unless(fine: BoolArray, reason: Reason) -> None:
            if not fine.all():
                code[(code == 0) & ~fine] = CODE[reason]

        unless(~look.dead, Reason.POWERED_OFF)
        unless(look.available, Reason.OFFLINE)
        unless(look.charge >= rules.battery_min, Reason.BATTERY)
        for name in rules.require:
            unless(state[name], REQUIREMENTS[name])
        if rules.willing != 1.0:
            unless(self._will.at(step)[:, 0] < self._willing(look), Reason.UNWILLING)
        accepted = code == 0
        share = np.where(accepted, 1.0, 0.0)
        if accepted.any():
            share = self._work(step, look, effort, code, share)
        return Decided(code, accepted, share)

    def _willing(self, look: Look) -> FloatArray:
        willing = self.life.participation.willing
        if isinstance(willing, Logit):
            return willing.chance(self.cast.z, look.x, len(look.charge))
        return np.full(len(look.charge), willing)

    def _work(
        self,
        step: int,
        look: Look,
        effort: Effort,
        code: IntArray,
        share: FloatArray,
    ) -> FloatArray:
        """Decide what goes wrong with accepted work.

        Enters the reasons into `code`, and returns the share of the work that each device does.
        """
        rules, battery = self.life.participation, self.life.device.battery
        takes_time = effort.work_s.any()
        if not (self.life.drop_out or battery or takes_time):
            return share  # nothing can go wrong
        lost, how_far = self._luck.at(step).T
        dropped = (code == 0) & (lost < self.life.drop_out)
        code[dropped] = CODE[Reason.DROP_OUT]
        share = np.where(dropped, how_far, share)
        if battery is not None:
            drain = work_drain(battery, self._capacity_mah, look.network, effort)
            with np.errstate(divide="ignore", invalid="ignore"):
                affordable = np.where(drain > 0, look.charge / drain, np.inf)
            empty = (code == 0) & (affordable <= 1)
            code[empty] = CODE[Reason.POWERED_OFF]
            share = np.where(empty, affordable, share)
        if takes_time:
            until = step * self.cast.step_s + effort.work_s
            state = self._conditions(until) if rules.require else {}
            fine = self.process.still_on(self.cast.scene(step, look.x), until)
            for name in rules.require:
                fine &= state[name]
            interrupted = (code == 0) & ~fine
            code[interrupted] = CODE[Reason.INTERRUPTED]
            share = np.where(interrupted, how_far, share)
        return share

    def take_part(self, called: IntArray, verdict: Decided, effort: Effort) -> None:
        """Update the states of devices by the work that they did after they accepted a call.

        Args:
            called: indices of the devices that were called and accepted.
            effort: the effort of all devices.
        """
        if not len(called):
            return
        look = self.look(int(self._at[called[0]]))
        self._state[called, _RECENT] += (1 - _MEMORY) * (verdict.code[called] == 0)
        battery = self.life.device.battery
        if battery is not None:
            drain = (work_drain(battery, self._capacity_mah, look.network, effort) * verdict.share)[
                called
            ]
            left = np.maximum(self._state[called, _CHARGE] - drain, 0.0)
            self._state[called, _CHARGE] = left
            self._state[called, _DEAD] = (self._state[called, _DEAD] > 0) | (left <= 0)
        self._seen = None

    def chance(self, step: int) -> FloatArray:
        """Each device's true probability of taking part in a step, shape (n,); for oracles and
        plans. Given Z, X and the device's state, and as if work took no time."""
        return self._chance(step, self.look(step))

    def _chance(self, step: int, look: Look) -> FloatArray:
        rules = self.life.participation
        state = {"charging": look.charging, "unmetered": look.unmetered, "idle": look.idle}
        fine = ~look.dead & (look.charge >= rules.battery_min)
        for name in rules.require:
            fine &= state[name]
        available = self.process.chance(self.cast.scene(step, look.x))
        if (effects := self._effects.at(step)) is not None:
            available = available * ~effects.offline
        chance: FloatArray = fine * available * self._willing(look) * (1 - self.life.drop_out)
        return chance


def _capacities(battery: Battery, devices: Sequence[SimulatedDevice]) -> FloatArray:
    """The capacity of each device's battery in mAh, shape (n,)."""
    same = battery.capacity_mah
    return np.array([same if each.battery_mah is None else each.battery_mah for each in devices])
