"""A study for tests: do devices that train longer per round learn more in three rounds?

Tests put this folder on the path and ask for `tiny_study:Tiny`.
"""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure

from muster.client.life.settings import ClockSettings
from muster.common.config import validate
from muster.emulator.report import style
from muster.emulator.scenario.scenario import Scenario
from muster.studies import (
    Claim,
    Findings,
    Options,
    Result,
    Results,
    Study,
    StudyFigure,
    StudyRun,
    StudyTable,
    greater,
)

STEPS = (1, 8)


def scenario(steps: int, seed: int) -> Scenario:
    values = {
        "name": "tiny",
        "seed": seed,
        "task": {"name": "linear", "dimension": 5, "heterogeneity": 1.0},
        "training": {"learning_rate": 0.02, "local_steps": steps, "batch_size": 8},
        "server": {"rounds": 3},
        "groups": [{"name": "dev", "count": 3}],
    }
    return validate(Scenario, values, "the tiny study")


def loss(result: Result) -> float:
    return result.final("loss")


class Tiny(Study):
    name = "tiny"
    about = "more work in a round learns more"
    paper = "Nobody, Nothing in Particular, 2020"
    paper_sizes = {"A": "1,000 devices"}  # noqa: RUF012

    def runs(self, options: Options) -> Sequence[StudyRun]:
        return [
            StudyRun("A", {"method": "sgd", "steps": steps}, scenario(steps, seed), 4.0)
            for seed in options.all_seeds
            for steps in STEPS
        ]

    def judge(self, results: Results, options: Options) -> Findings:
        losses = {steps: results.by_seed(loss, part="A", steps=steps) for steps in STEPS}
        few, many = losses.values()
        frame = pd.DataFrame(losses).rename_axis("seed").reset_index()
        return Findings(
            claims=[self.claim(few, many)],
            figures=[
                StudyFigure("losses", "Losses", lambda: self.figure(frame), "Lower is better.")
            ],
            tables=[StudyTable("losses", "Losses by seed", frame)],
            notes=["Linear regression is not the world."],
        )

    def claim(self, few: dict[int, float], many: dict[int, float]) -> Claim:
        claim = greater("eight steps a round learn more than one", few, many)
        return claim.because("Each step lowers the loss.")

    def figure(self, frame: pd.DataFrame) -> Figure:
        figure = style.new_figure(3.0)
        axes = figure.subplots()
        axes.plot(frame["seed"], frame[list(STEPS)])
        style.tidy(axes, "Many steps learn more", "seed", "loss")
        return figure

    def remarks(self, options: Options) -> Sequence[str]:
        return ["" if options.data else "Without data it does as well."]


class Wrong(Tiny):
    def claim(self, few: dict[int, float], many: dict[int, float]) -> Claim:
        return greater("one step a round learns more than eight", many, few)


class OnTheWallClock(Tiny):
    def runs(self, options: Options) -> Sequence[StudyRun]:
        wall = ClockSettings(kind="wall")
        return [
            replace(run, scenario=run.scenario.model_copy(update={"clock": wall}))
            for run in super().runs(options)
        ]


class Needy(Tiny):
    """A study that reads the account of a run directly; a failed run has none."""

    def judge(self, results: Results, options: Options) -> Findings:
        assert results[-1].vector.shape == (6,)
        assert not results[-1].account.rounds.empty
        return super().judge(results, options)
