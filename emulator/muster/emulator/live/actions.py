"""What the page can ask of a run: the same requests that the commands make."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from muster.common.config import Section, validate
from muster.emulator.injection import by_hand as fault_control
from muster.emulator.injection.manual_faults import FaultRequest, HealRequest
from muster.emulator.run_folder import control

Action = Literal["inject", "heal", "pause", "unpause", "stop"]


class PauseRequest(Section):
    """A request to pause programs of the fleet; `target` is as in a scenario."""

    target: dict[str, Any] = Field(default_factory=dict)
    for_s: float | None = None
    until_healed: bool = False


def act(folder: Path, action: Action, values: Mapping[str, Any]) -> str:
    """Do what a person asked for, and say what was done.

    Raises:
        ConfigError: the request is wrong, or cannot take effect in this run.
        Unreachable: no run goes on in the folder.
        RunFailed: the run's server does not answer.
    """
    source = f"the request to {action}"
    if action == "stop":
        control.stop(folder)
        return "asked the server to stop the run"
    if action == "inject":
        wanted = validate(FaultRequest, values, source)
        return _inject(folder, **dict(wanted))
    if action == "pause":
        return _inject(folder, kind="pause", **dict(validate(PauseRequest, values, source)))
    if action == "heal":
        names = fault_control.heal(folder, validate(HealRequest, values, source).name)
    else:
        names = fault_control.heal(folder, kind="pause")
    return f"healed: {', '.join(names)}"


def _inject(folder: Path, **options: Any) -> str:
    done = fault_control.inject(folder, **options)
    return f"{done.name} acts on {len(done.targets)} target{'s' * (len(done.targets) != 1)}"
