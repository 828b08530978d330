"""`verify`: checks by measurement that the links of a scenario match their settings."""

import asyncio
import secrets
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from muster.common.clock import Clock, WallClock
from muster.common.concurrency import on_stop, run_to_end
from muster.common.credentials import (
    SECRETS,
    SUPERVISOR,
    credentials_path,
    gateway_identity,
    read_credentials,
)
from muster.common.errors import ConfigError, LaunchFailed, RunFailed
from muster.common.events import Tell, Verified, Verifying
from muster.emulator.credentials.issuing import Issuer, certifier_of
from muster.emulator.fleet.packs import packs_by_gateway
from muster.emulator.launch.backend import BackendName, MakeBackend, ending
from muster.emulator.launch.choice import kind_of
from muster.emulator.launch.gateway_configs import gateways_of
from muster.emulator.link_control.controller import Controller
from muster.emulator.link_control.running_gateway import RunningGateway
from muster.emulator.scenario.population import population
from muster.emulator.scenario.reading import read_scenario
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.verification.gateways import DEVICES, SECONDS, Show, verify_gateways
from muster.emulator.verification.result import Tolerances, Verification
from muster.emulator.verification.tables import describe


def verify(
    scenario: Scenario | Path | str,
    *,
    seconds: float = SECONDS,
    tolerances: Tolerances | None = None,
    devices: int = DEVICES,
    backend: BackendName = "processes",
    show: Show = lambda line: None,
    clock: Clock | None = None,
) -> Verification:
    """Measure the links of a scenario. This starts the scenario's gateways, but no server or
    devices.

    Args:
        scenario: a scenario, or the path of its TOML file.
        seconds: how long each rate is measured.
        devices: number of devices of each group that are measured one by one, chosen by the seed;
            0: all.
        backend: whether the gateways are processes of this machine or containers.
        show: called with a description of each step, for people.

    Raises:
        ConfigError: the scenario is wrong, or has no links; nothing was started.
        RunFailed: a gateway did not start or died, or a signal ended the verification.
    """
    if not isinstance(scenario, Scenario):
        scenario = read_scenario(Path(scenario))
    if not any(group.gateway for group in scenario.groups):
        raise ConfigError(
            f"{scenario.name} has no links to verify: every group reaches the server directly; "
            "set groups.link.profile, or groups.link.up and groups.link.down"
        )
    kind = kind_of(backend)
    kind.require_to_verify(scenario)
    tolerances, clock = tolerances or Tolerances(), clock or WallClock()
    work = _with_gateways(scenario, seconds, tolerances, devices, kind.make, show, clock)
    return run_to_end(_until_stopped(work))


async def _until_stopped(work: Coroutine[Any, Any, Verification]) -> Verification:
    """The result of `work`, unless a signal ends it before.

    Raises:
        RunFailed: a signal has ended it.
    """
    working = asyncio.create_task(work)
    on_stop(working.cancel)
    await asyncio.wait({working})
    if working.cancelled():
        raise RunFailed("stopped before everything was measured")
    return working.result()


async def _with_gateways(
    scenario: Scenario,
    seconds: float,
    tolerances: Tolerances,
    devices: int,
    make_backend: MakeBackend,
    show: Show,
    clock: Clock,
) -> Verification:
    died: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_death(name: str, status: int) -> None:
        if not died.done():
            died.set_result(f"{name} {ending(status)}")

    with TemporaryDirectory(prefix="muster-verify-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        for part in ("logs", "setup"):
            (folder / part).mkdir()
        backend = make_backend(scenario, folder, clock, on_death)
        certifier = certifier_of(scenario.launch, backend.encrypts, clock)
        residents, credentials = population(scenario), folder / SECRETS
        issuer = Issuer(credentials, secrets.token_hex(8), certifier)
        issuer.issue(packs_by_gateway(scenario, residents))
        supervisor = read_credentials(credentials_path(credentials, SUPERVISOR))
        async with AsyncExitStack() as stack:
            stack.push_async_callback(backend.close)
            gateways = []
            configs = gateways_of(scenario, residents, folder / "setup", str(credentials))
            for config in configs:
                show(f"starting the gateway of {config.group}")
                ports = await backend.start_gateway(config)
                controller = await stack.enter_async_context(
                    Controller(ports, supervisor, clock, gateway=gateway_identity(config.group))
                )
                reached = backend.reachable_ports(config.group, ports)
                gateways.append(RunningGateway(config, reached, controller))
            if not gateways:
                raise ConfigError(f"{scenario.name}: no device is enrolled in a group with links")
            measuring = asyncio.create_task(
                verify_gateways(
                    gateways,
                    clock,
                    scenario=scenario.name,
                    seconds=seconds,
                    tolerances=tolerances,
                    devices=devices,
                    here=backend.here,
                    certifier=certifier,
                    show=show,
                )
            )
            try:
                watched: set[asyncio.Future[Any]] = {measuring, died}
                await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                if not measuring.done():
                    gone = died.result()
                    raise LaunchFailed(f"{gone}{backend.last_lines(gone.split()[0])}")
                return measuring.result()
            finally:
                measuring.cancel()
                await asyncio.wait({measuring})


_SHORT_S = 1.0
"""Seconds over which a rate is measured."""


async def verify_before_run(
    gateways: Sequence[RunningGateway], clock: Clock, here: str, scenario: str, record: Tell
) -> None:
    """Measure all links briefly.

    Args:
        here: the address at which the gateways reach this process.
        record: records an event in the journal.

    Raises:
        RunFailed: a link does not match its settings.
    """
    found = await verify_gateways(
        gateways,
        clock,
        here=here,
        scenario=scenario,
        seconds=_SHORT_S,
        grpc=False,
        show=lambda step: record(Verifying(step)),
    )
    record(Verified(found.ok, len(found.rows)))
    if not found.ok:
        raise RunFailed(
            f"links do not match their settings (verify = true):\n{describe(found)}\n"
            f"`muster verify` measures them at length"
        )
