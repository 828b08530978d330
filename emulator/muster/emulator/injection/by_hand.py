"""Injects and heals faults in a run that goes on, from another program. The run's supervisor does
it (`faults.manual_faults`); `muster inject`, `heal`, `pause` and `unpause` call these functions."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.emulator.injection.manual_faults import FaultRequest, HealRequest
from muster.emulator.run_folder.supervisor_socket import ask_supervisor


@dataclass(frozen=True)
class InjectedByHand:
    """A fault that was injected by hand.

    Attributes:
        name: by which results and `heal` call it.
        targets: the clients, gateways or "server" that it strikes.
        for_s: seconds for which it lasts, as `for_s` of a scenario; 0 if it happens at one moment,
            None if it lasts until it is healed or the run ends.
    """

    name: str
    targets: list[str]
    for_s: float | None


def inject(
    folder: Path | str,
    kind: str,
    *,
    target: Mapping[str, Any] | None = None,
    for_s: float | None = None,
    until_healed: bool = False,
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> InjectedByHand:
    """Inject a fault into the run in a folder, which must go on at the moment.

    Args:
        kind: a fault of programs or links: `crash`, `pause`, `partition`, … or `module:Class`.
        target: as `target` of a scenario; default: all devices.
        for_s: seconds for which it lasts, as in a scenario. Default: 5 seconds of wall time.
        until_healed: let it last until `heal` or the end of the run instead.
        name: the fault's name; default: its kind and a number.
        settings: the settings of the fault itself.

    Raises:
        ConfigError: the fault is wrong, or cannot take effect in this run; nothing was changed.
        Unreachable: no run goes on in the folder, or it has no supervisor.
    """
    request = FaultRequest(
        kind=kind,
        target=dict(target or {}),
        for_s=None if for_s is None else float(for_s),
        until_healed=until_healed,
        name=name,
        settings=dict(settings or {}),
    )
    done = ask_supervisor(Path(folder), {"inject": request.model_dump(exclude_none=True)})
    return InjectedByHand(**done)


def heal(folder: Path | str, name: str | None = None, *, kind: str | None = None) -> list[str]:
    """Heal faults of programs and links that act at the moment; return their names.

    Args:
        name: only this fault.
        kind: only faults of this kind.

    Raises:
        ConfigError: no such fault acts.
        Unreachable: no run goes on in the folder, or it has no supervisor.
    """
    request = HealRequest(name=name, kind=kind)
    done = ask_supervisor(Path(folder), {"heal": request.model_dump(exclude_none=True)})
    return list(done["healed"])
