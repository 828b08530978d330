"""`muster worst`: the schedule of absences that harms most."""

from pathlib import Path

import click

from muster.cli.options import (
    DATA,
    JSON,
    SCENARIO,
    SETTINGS,
    NumberRange,
    failures_as_status,
    folder_option,
    print_result,
    tell_user,
)
from muster.emulator.run_folder.folder import shown


@click.command()
@SCENARIO
@click.option(
    "--budget",
    type=NumberRange(0, 1, min_open=True),
    default=0.1,
    show_default=True,
    metavar="SHARE",
    help="The share of the device-rounds that may go wrong.",
)
@click.option("--rounds", type=click.IntRange(1), metavar="N", help="In place of server.rounds.")
@click.option(
    "--against",
    default="loss",
    show_default=True,
    metavar="MEASURE",
    help="What is to get worse: accuracy, loss, or group:NAME for the loss of a group.",
)
@click.option(
    "--family",
    metavar="NAME",
    help="independent, groups, classes, outages, participation or late; default groups if the "
    "scenario has several, otherwise outages.",
)
@click.option(
    "--runs",
    type=click.IntRange(20),
    default=200,
    show_default=True,
    metavar="N",
    help="How many schedules the search plays, a quarter of them at random.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=1,
    show_default=True,
    metavar="N",
    help="The seed of the search.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    metavar="N",
    help="How many runs are played at a time.",
)
@SETTINGS
@folder_option("--out", "The folder to create, or to continue; default runs/NAME-worst-TIME.")
@DATA
@click.option("--quiet", is_flag=True, help="Print only problems and the result.")
@JSON
@failures_as_status
def worst(
    scenario: Path,
    budget: float,
    rounds: int | None,
    against: str,
    family: str | None,
    runs: int,
    seed: int,
    processes: int,
    settings: tuple[str, ...],
    out: Path | None,
    data: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Search the schedule of absences that harms the model of SCENARIO most, within a budget, and
    compare it with random schedules of the same budget. The folder gets the life record and the
    scenario of the worst case, which `muster run` plays over real processes to the same model."""
    from muster.laboratory.worst_case.finding import worst_of
    from muster.laboratory.worst_case.view import describe, numbers_of

    found, folder = worst_of(
        scenario,
        budget=budget,
        against=against,
        family=family,
        rounds=rounds,
        runs=runs,
        seed=seed,
        settings=settings,
        data=data,
        out=out,
        processes=processes,
        begun=lambda folder: tell_user(
            f"searching in {shown(folder)}; after Ctrl-C, the same command with --out "
            f"{shown(folder)} goes on",
            quiet,
        ),
        watch=lambda played: tell_user(f"{played:,} of about {runs:,} schedules played", quiet),
    )
    print_result(
        lambda: f"{describe(found)}\n\n  {shown(folder)}",
        lambda: {"folder": str(folder), **numbers_of(found)},
        as_json,
    )
