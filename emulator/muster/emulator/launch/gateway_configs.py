"""Computes the settings of the gateways of a scenario."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from muster.common.credentials import credentials_path, gateway_identity
from muster.emulator.fleet.lives import by_group
from muster.emulator.gateway.config import GatewayDevice, GatewayProcess, gateway_name
from muster.emulator.scenario.population import Resident
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.scenario.settings import Group

_NOWHERE = "127.0.0.1:9"
"""Address of the server for gateways that do not know the real one yet."""


def gateways_of(
    scenario: Scenario,
    residents: Sequence[Resident],
    setup: Path,
    credentials: str,
    everywhere: bool = False,
) -> Iterator[GatewayProcess]:
    """Yield the settings of a gateway for every group whose devices have links or share one, and
    of one gateway for groups that share a link.

    Args:
        residents: the population; only enrolled devices have links.
        setup: folder of the files into which gateways write their ports.
        credentials: the folder of all credentials of the run.
        everywhere: whether groups without links also get a gateway, because it is their only way
            to the server.
    """
    found: dict[str, tuple[Group, list[Resident]]] = {}
    for group, of_group in by_group(scenario, residents):
        if group.gateway or everywhere:
            _, enrolled = found.setdefault(group.gateway_group, (group, []))
            enrolled += (resident for resident in of_group if resident.enrolled)
    for name, (group, enrolled) in found.items():
        if enrolled:
            yield GatewayProcess(
                group=name,
                seed=scenario.seed,
                devices=[
                    GatewayDevice(client=resident.client, shape=resident.shape)
                    for resident in enrolled
                ],
                shared=group.shared_line(scenario.seed),
                upstream=_NOWHERE,
                ready=str(setup / f"{gateway_name(name)}.json"),
                words=_words(group, name, setup),
                credentials=str(credentials_path(credentials, gateway_identity(name))),
            )


def _words(group: Group, name: str, setup: Path) -> str | None:
    """The file in which a gateway keeps devices' words about slots. It is in a folder of its own,
    which a container can mount."""
    if group.shared_link.slots is None:
        return None
    return str(setup / f"{gateway_name(name)}.words" / "words.jsonl")
