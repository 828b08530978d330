"""The scenario with which a recorded run is played again, in virtual time."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from muster.client.training.local import fingerprint
from muster.common.errors import ConfigError
from muster.common.life_record import LifeRecord
from muster.emulator.records.inputs import KINDS, changes, inputs_in
from muster.emulator.run_folder.folder import SCENARIO
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.recorded_life import require_population, trains_from_state
from muster.emulator.scenario.scenario import Scenario
from muster.laboratory.grades import Grade
from muster.server.rounds.arrivals import uncertain_calls
from muster.simulation.whole_run import require_simulated


def played_scenario(
    folder: Path,
    record: LifeRecord,
    life: Path,
    grade: Grade,
    settings: Sequence[str | tuple[str, Any]] = (),
    data: str | None = None,
) -> Scenario:
    """The scenario of a run folder, as it is played from its life record.

    Args:
        life: the file in which the record is, or will be.
        settings: what is changed, as for `--set`.
        data: the data directory.

    Raises:
        ConfigError: the run cannot be played with these changes.
    """
    recorded = read_scenario(folder / SCENARIO, data=data)
    changed = read_scenario(folder / SCENARIO, [*grade.played(recorded, life), *settings], data)
    if grade.recorded:
        require_population(record, changed)
    grade.require_effect(recorded, changed)
    require_simulated(changed)
    return changed


def changed_code(folder: Path) -> list[str]:
    """Check that the data and the settings of a run are those with which it was made.

    Returns:
        The files with code of the user's own that are not. They are played as they are now.

    Raises:
        ConfigError: the data, the settings or the initial model are not.
    """
    code = []
    began = inputs_in(folder)
    for kind, name, expected, found in changes(began, folder) if began else ():
        if kind == "module":
            code.append(name)
        elif KINDS[kind].binds:
            raise ConfigError(
                f"{folder}: {name}, {KINDS[kind].what}, has changed since the run was made: "
                f"expected SHA-256 {expected}, found {found}. Restore it, because the played runs "
                f"would differ by more than what you change"
            )
    return code


def uncertain(record: LifeRecord, scenario: Scenario) -> int:
    """The number of calls for which a device may have trained without a known update, if devices go
    on from what training has left on them; else 0."""
    if not trains_from_state(scenario):
        return 0
    return uncertain_calls(record, scenario.server.mode.outlives_round())


def made_elsewhere(folder: Path) -> bool:
    """Whether a run was made by devices with another fingerprint than this machine, which trains
    with one thread, so that the bits of a model may differ."""
    from muster.emulator.records.account import Account

    with Account(folder) as account:
        recorded = Counter(account.clients["fingerprint"].dropna())
    here = fingerprint("cpu") | {"threads": 1}
    return any(orjson.loads(text) != here for text in recorded)
