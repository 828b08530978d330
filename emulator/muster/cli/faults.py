"""`muster inject`, `heal`, `pause`, `unpause` and `export-faults`: faults by hand, in a run that
goes on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from muster.cli.listing import completing
from muster.cli.options import failures_as_status
from muster.common.errors import ConfigError

_RUN = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
_FOR_S = click.option(
    "--for-s",
    type=float,
    metavar="S",
    help="Seconds after which it heals by itself, as for_s of a scenario (default: 5 s wall time).",
)
_UNTIL_HEALED = click.option(
    "--until-healed", is_flag=True, help="Let it last until `heal`, or the end of the run."
)


@click.command()
@_RUN
@click.argument("kind", shell_complete=completing("faults"))
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--target",
    "targets",
    multiple=True,
    help=(
        "A device, `server`, or a key of target: group=NAME, count=N, percent=P, role=gateway. "
        "May be repeated: two devices, or group=NAME and count=N. Default: all devices."
    ),
)
@_FOR_S
@_UNTIL_HEALED
@click.option("--name", help="The name of the fault (default: its kind and a number).")
@failures_as_status
def inject(
    folder: Path,
    kind: str,
    settings: tuple[str, ...],
    targets: tuple[str, ...],
    for_s: float | None,
    until_healed: bool,
    name: str | None,
) -> None:
    """Inject a fault of programs or links into the run in DIR, which must go on.

    KIND is crash, stop, restart, pause, churn, cpu-limit, memory-limit, disk-full, blackhole,
    disconnect, partition, reset, limit-bytes, flap, degrade, degrade-shared, delay, jitter
    or loss (docs/faults.md). KEY=VALUE are its settings, for example factor=0.5.
    """
    target, *more = _targets_of(targets)
    if more:
        raise ConfigError("--target: a fault strikes devices or the server; inject two faults")
    _inject(
        folder,
        kind,
        target=target,
        for_s=for_s,
        until_healed=until_healed,
        name=name,
        settings=dict(map(_pair, settings)),
    )


@click.command()
@_RUN
@click.argument("name", required=False)
@failures_as_status
def heal(folder: Path, name: str | None) -> None:
    """Heal the fault NAME in the run in DIR now, or all faults of programs and links that act."""
    from muster.emulator.injection.by_hand import heal

    click.echo(f"healed: {', '.join(heal(folder, name))}")


@click.command()
@_RUN
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@_FOR_S
@_UNTIL_HEALED
@failures_as_status
def pause(folder: Path, targets: tuple[str, ...], for_s: float | None, until_healed: bool) -> None:
    """Pause programs of the fleet in DIR: devices, or `server` (default: all devices).

    The programs are stopped but not ended, as by the fault `pause`. TARGET is as in `inject`.
    """
    for target in _targets_of(targets):
        _inject(folder, "pause", target=target, for_s=for_s, until_healed=until_healed)


@click.command()
@_RUN
@failures_as_status
def unpause(folder: Path) -> None:
    """Let all paused programs of the fleet in DIR go on.

    A run that has stopped is resumed by `muster run --resume DIR`.
    """
    from muster.emulator.injection.by_hand import heal

    click.echo(f"healed: {', '.join(heal(folder, kind='pause'))}")


@click.command("export-faults")
@_RUN
@failures_as_status
def export_faults(folder: Path) -> None:
    """Print the faults that were injected by hand into the run in DIR, as [[faults]] tables."""
    from muster.emulator.export.faults import exported_faults

    click.echo(exported_faults(folder), nl=False)


def _inject(folder: Path, kind: str, **options: Any) -> None:
    from muster.emulator.injection.by_hand import inject

    done = inject(folder, kind, **options)
    some = ", ".join(done.targets[:5])
    more = f" and {len(done.targets) - 5} more" if len(done.targets) > 5 else ""
    ends = f"until `muster heal {folder} {done.name}`, or the end of the run"
    if done.for_s is not None:
        ends = f"for {done.for_s:g} s" if done.for_s else "once"
    click.echo(f"{done.name}: {kind} on {some}{more}, {ends}")


def _targets_of(words: Sequence[str]) -> list[dict[str, Any]]:
    """The targets that words name, each as `target` of a scenario: one for devices, and one for the
    server. Without words, all devices.

    Raises:
        ConfigError: a key has two values.
    """
    from muster.emulator.scenario.reading import setting_value

    target: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            if key in target:
                raise ConfigError(
                    f"{word}: the target has {key} already; inject one fault for each"
                )
            target[key] = setting_value(value)
        elif word != "server":
            target.setdefault("names", []).append(word)
    server = [{"role": "server"}] if "server" in words else []
    return [target, *server] if target or not server else server


def _pair(setting: str) -> tuple[str, Any]:
    from muster.emulator.scenario.reading import setting_value

    key, equals, value = setting.partition("=")
    if not equals:
        raise ConfigError(
            f"{setting}: expected KEY=VALUE, for example factor=0.5; --target names a device"
        )
    return key, setting_value(value)
