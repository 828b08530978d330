"""The energy of a run and its carbon, computed from the ledger: modelled seconds, outcomes and
networks of the calls, and what the scenario says of the devices.

All amounts are whole numbers, µJ and ng, rounded once for each phase of each call. So the sums of
phases, of devices and of rounds are equal to the totals, exactly.
"""

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from muster.common.errors import ConfigError
from muster.emulator.records.scenario_time import round_durations
from muster.emulator.run_folder.folder import SCENARIO

if TYPE_CHECKING:  # these take long to import, and a summary is described without them
    import pandas as pd

    from muster.client.life.effort import Effort
    from muster.client.life.energy import Phases
    from muster.client.life.settings import PackMember
    from muster.common.seeds import FloatArray, IntArray
    from muster.emulator.records.account import Account
    from muster.emulator.scenario.energy import EnergySettings
    from muster.emulator.scenario.scenario import Scenario
    from muster.emulator.scenario.settings import Group
    from muster.server.settings.process import ServerProcess

PHASE_COLUMNS: Final = {
    "compute_uj": "compute",
    "radio_down_uj": "radio down",
    "radio_up_uj": "radio up",
    "idle_uj": "idle",
}
"""The columns of the phases, with their names in words."""

JOULE_UJ, GRAM_NG = 1e6, 1e9

_NG_OF = 1e9 / 3.6e12
"""Nanograms for a microjoule at 1 g/kWh."""

_MOST_J = 9e12
"""Sums of more joules do not fit into 64 bits."""


def energy_of(account: "Account") -> "pd.DataFrame | None":
    """The energy of every call that a device accepted; None without `[energy]` in the scenario.

    Columns: `round`, `client` and `group` of the call; `counted`, whether its update became part of
    the model; the microjoules of its phases, `PHASE_COLUMNS`; `total_uj`, their sum; `co2e_ng`,
    nanograms of CO₂ equivalent, only if the scenario has an intensity.

    Raises:
        ConfigError: the scenario, a file that it names, or the configuration of the server cannot
            be read.
    """
    if not isinstance(account.scenario.get("energy"), Mapping):
        return None
    if account not in _KNOWN:
        _KNOWN[account] = _computed(account)
    return _KNOWN[account]


_KNOWN: "WeakKeyDictionary[Account, pd.DataFrame]" = WeakKeyDictionary()


def _computed(account: "Account") -> "pd.DataFrame":
    import numpy as np
    import pandas as pd

    from muster.emulator.fleet.lives import by_group, members_of
    from muster.emulator.scenario.population import population, with_examples
    from muster.emulator.scenario.reading import settled

    scenario = settled(copy.deepcopy(account.scenario), str(account.folder / SCENARIO))
    assert scenario.energy is not None
    examples = account.clients["examples"].tolist()
    config, calls = _server_config(account), _accepted(account)
    parts = []
    for group, residents in by_group(scenario, with_examples(population(scenario), examples)):
        members = members_of(scenario, group, residents)
        places = {member.client: place for place, member in enumerate(members)}
        rows = calls[calls["client"].isin(places)]
        effort = _effort(scenario, config, group, members, examples)
        at = np.array(rows["client"].map(places), np.int64)
        parts.append(_priced(scenario, scenario.energy, group, members, rows, at, effort))
    table = pd.concat(parts, ignore_index=True)
    return table.sort_values(["round", "client"], kind="stable", ignore_index=True)


def _server_config(account: "Account") -> "ServerProcess":
    from muster.common.own_code import use
    from muster.server.settings.process import ServerProcess

    path = account.folder / "setup/server.json"
    if isinstance(modules := account.scenario.get("modules"), str):
        use(modules)
    try:
        return ServerProcess.from_json(path.read_bytes())
    except (OSError, ConfigError) as error:
        raise ConfigError(
            f"{path}: expected the configuration that the run has written, whose model says what "
            f"devices sent, found {error}; restore it, or remove [energy] from {SCENARIO}"
        ) from None


def _accepted(account: "Account") -> "pd.DataFrame":
    """The calls of committed rounds that devices accepted, also those that they gave up: with
    `counted`, the scenario second `at_s`, and the seconds `kept_s` for which a call keeps a
    device: until its round is over and its work done."""
    import pandas as pd

    rounds, sent = account.rounds.set_index("round"), account.contributions
    calls = account.work
    calls = calls[calls["round"].isin(rounds.index)].reset_index(drop=True)
    folded = sent.loc[sent["outcome"] == "folded", ["call_round", "client"]]
    of_call = pd.MultiIndex.from_frame(calls[["round", "client"]])
    lasted = calls["round"].map(round_durations(account)).fillna(0.0)
    return calls.assign(
        counted=of_call.isin(pd.MultiIndex.from_frame(folded)),
        at_s=calls["round"].map(rounds["scenario_s"]).fillna(0.0),
        kept_s=lasted.clip(lower=calls["modelled_s"].fillna(0.0)),
    )


def _effort(
    scenario: "Scenario",
    config: "ServerProcess",
    group: "Group",
    members: "list[PackMember]",
    examples: list[int],
) -> "Effort":
    """The modelled effort of a whole call, as the devices of a group compute it."""
    import numpy as np

    from muster.client.life.effort import effort_of
    from muster.common.body_sizes import body_sizes
    from muster.common.masks import Layout
    from muster.emulator.fleet.masks import masks_of

    layout = Layout(config.tensors, config.units)
    entries = layout.parameters * scenario.server.aggregator.vectors()
    masks = masks_of(scenario, layout).get(group.name)
    sizes = body_sizes(entries, group.link.compression, masks, config.sum_format)
    training = scenario.training.of(group.training)
    held = [(member.client, examples[member.index]) for member in members]
    seen = np.array([training.of_device(*each).examples_seen(each[1]) for each in held])
    speeds = np.array([member.examples_per_s for member in members], np.float64)
    return effort_of(seen / speeds, [member.line for member in members], *sizes)


def _priced(
    scenario: "Scenario",
    settings: "EnergySettings",
    group: "Group",
    members: "list[PackMember]",
    rows: "pd.DataFrame",
    places: "IntArray",
    whole: "Effort",
) -> "pd.DataFrame":
    """The energy of the calls of a group.

    Args:
        rows: its accepted calls.
        places: the places of their devices among the members.
        whole: the effort of each member.
    """
    import numpy as np

    from muster.client.life.connectivity import ETHERNET, NETWORKS
    from muster.client.life.energy import energy_j
    from muster.emulator.scenario.energy import read_intensity
    from muster.server.rounds.steps import step_at

    at_s, kept_s = rows["at_s"].to_numpy(float), rows["kept_s"].to_numpy(float)
    step_s = scenario.clock.round_s
    begun_s = [step_s * step_at(each, step_s) for each in at_s]  # work begins with a step
    codes = {network.name: code for code, network in enumerate(NETWORKS)}
    network = np.array(rows["network"].map(codes).fillna(ETHERNET), np.int64)
    begun, shared = rows.assign(at_s=begun_s), group.shared_link.gateway
    seconds = phase_seconds(whole, places, begun, network, shared)
    joules = energy_j(group.device, settings.voltage, network, seconds)
    if sum(float(phase.sum()) for phase in joules) > _MOST_J:
        raise ConfigError(f"energy: group {group.name} takes more than {_MOST_J:g} J")
    table = rows[["round", "client"]].assign(group=group.name, counted=rows["counted"])
    for column, phase in zip(PHASE_COLUMNS, joules, strict=True):
        table[column] = np.rint(phase * JOULE_UJ).astype("int64")
    table["total_uj"] = table[[*PHASE_COLUMNS]].sum(axis="columns")
    if settings.intensity is not None:
        grid = read_intensity(settings.intensity)
        zones_h = np.array([member.zone_h for member in members])[places]
        local_s = 3600 * (scenario.clock.starts_at_h + zones_h) if grid.local else 0.0
        grams = grid.mean(at_s + local_s, kept_s)
        table["co2e_ng"] = np.rint(table["total_uj"] * grams * _NG_OF).astype("int64")
    return table


def phase_seconds(
    whole: "Effort",
    places: "IntArray",
    calls: "pd.DataFrame",
    network: "IntArray",
    shared: bool,
) -> "Phases":
    """How long the phases of calls last, of which the ledger has the modelled seconds.

    A device that gave up has done the share of each part that it has done of the whole. If the work
    took longer than the device's own link and speed say, a fault slowed the training down; or, over
    a shared link, the device waited for others.
    """
    import numpy as np

    from muster.client.life.battery import radio_seconds
    from muster.client.life.energy import Phases

    begun = _begun(whole, places, calls["at_s"].to_numpy(float))
    work_s, modelled_s = begun.work_s, calls["modelled_s"].to_numpy(float)
    ratio = np.divide(modelled_s, work_s, out=np.ones(len(work_s)), where=work_s > 0)
    ratio = np.where(np.isnan(ratio), 1.0, ratio)
    share = np.minimum(ratio, 1.0)
    more_s = 0.0 if shared else np.maximum(ratio - 1, 0) * work_s
    down_s, up_s = radio_seconds(network, begun)
    kept_s = calls["kept_s"].to_numpy(float)
    return Phases(begun.train_s * share + more_s, down_s * share, up_s * share, kept_s)


def _begun(whole: "Effort", places: "IntArray", at_s: "FloatArray") -> "Effort":
    """The whole effort of each call, from the moment at which it begins."""
    import numpy as np

    def of_calls(effort: "Effort", at: "IntArray") -> list["FloatArray"]:
        parts = effort.train_s, effort.transfer_s, effort.down_s, effort.up_s
        return [part[at] for part in parts]

    found = np.array(of_calls(whole, places))
    if whole.lines:
        for moment in np.unique(at_s):
            here = at_s == moment
            found[:, here] = of_calls(whole.at(float(moment)), places[here])
    train_s, transfer_s, down_s, up_s = found
    return whole._replace(
        train_s=train_s, transfer_s=transfer_s, down_s=down_s, up_s=up_s, lines=()
    )


def totals_of(energy: "pd.DataFrame") -> dict[str, Any]:
    """The totals of calls in joules and grams, as `summary.json` has them: of all, of the phases,
    and of what is wasted on updates that did not count."""
    total_j = int(energy["total_uj"].sum()) / JOULE_UJ
    wasted = energy[~energy["counted"]]
    found: dict[str, Any] = {
        "joules": total_j,
        "phases": {
            name.replace(" ", "_"): int(energy[column].sum()) / JOULE_UJ
            for column, name in PHASE_COLUMNS.items()
        },
        "wasted": int(wasted["total_uj"].sum()) / JOULE_UJ,
    }
    if "co2e_ng" in energy:
        found["co2e_g"] = int(energy["co2e_ng"].sum()) / GRAM_NG
    return found


def energy_text(totals: Mapping[str, Any]) -> str:
    """For example "1,234 J, 12.3 % of it wasted; 0.137 g of CO₂ equivalent"."""
    joules = totals["joules"]
    share = totals["wasted"] / joules if joules else 0.0
    carbon = f"; {totals['co2e_g']:.4g} g of CO₂ equivalent" if "co2e_g" in totals else ""
    return f"{joules_text(joules)}, {share:.1%} of it wasted".replace("%", " %") + carbon


def joules_text(joules: float) -> str:
    """For example "1.234 kJ"."""
    for factor, unit in ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ")):
        if joules >= factor:
            return f"{joules / factor:.4g} {unit}"
    return f"{joules:.4g} J"
