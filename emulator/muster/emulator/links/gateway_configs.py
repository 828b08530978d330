"""The gateways of a scenario: what each of them is started with."""

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

from muster.emulator.fleet.lives import by_group
from muster.emulator.fleet.population import Resident
from muster.emulator.gateway.config import GatewayDevice, GatewayProcess, gateway_name
from muster.emulator.scenario.scenario import Group, Scenario

_NOWHERE = "127.0.0.1:9"
"""Where gateways would lead before they are told where the server is."""


def gateways_of(
    scenario: Scenario,
    residents: Sequence[Resident],
    setup: Path,
    device_token: str,
    everywhere: bool = False,
) -> Iterator[GatewayProcess]:
    """A gateway for every group whose devices have links, or share something.

    Args:
        residents: of the population; only the enrolled have links.
        setup: folder of the files in which gateways say where they listen.
        device_token: the fleet's token, hexadecimal.
        everywhere: for groups without links too, where a gateway is their only way.
    """
    for group, of_group in by_group(scenario, residents):
        clients = [resident.client for resident in of_group if resident.enrolled]
        if (group.gateway or everywhere) and clients:
            yield GatewayProcess(
                group=group.name,
                seed=scenario.seed,
                devices=[
                    GatewayDevice(client=client, shape=group.link.shape_of(scenario.seed, client))
                    for client in clients
                ],
                shared=group.shared_link.line(),
                upstream=_NOWHERE,
                ready=str(setup / f"{gateway_name(group.name)}.json"),
                words=_words(group, setup),
                controller_token=secrets.token_hex(16),
                device_token=device_token,
            )


def _words(group: Group, setup: Path) -> str | None:
    """Where a gateway keeps what devices said about slots: a folder of its own, for a container."""
    if group.shared_link.slots is None:
        return None
    return str(setup / f"{gateway_name(group.name)}.words" / "words.jsonl")
