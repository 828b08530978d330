"""What the usual rules do if devices with other data are seldom there.

Every rule is run on the same fleet with all devices, and with one of the six devices of a group in
a round. The optimum of all devices is known, and so is where a weighted mean of updates ends.
"""

from collections.abc import Sequence
from typing import ClassVar

from muster.studies.results import Results
from muster.studies.study import Findings, Options, Study, StudyFigure, StudyTable
from muster.studies.study_run import StudyRun
from muster.studies.usual_rules.claims import checks_of, claims_of
from muster.studies.usual_rules.figure import draw_bias
from muster.studies.usual_rules.fleet import (
    ALL_COME,
    BULYAN,
    FEDYOGI,
    MULTI_KRUM,
    NONE_COME,
    ONE_COMES,
    RULES,
    SCAFFOLD,
    scenario,
)
from muster.studies.usual_rules.measures import BIAS, PREDICTED, UsualRulesMeasures

ROUNDS = 60

_LEFT_OUT = (FEDYOGI, MULTI_KRUM, BULYAN)
"""The rules that the quick form does not run, because they are like others."""

_EXPECTED_S = 5.0


class UsualRulesStudy(Study):
    """A fleet of which a group with other data is seldom there."""

    name: ClassVar = "usual-rules"
    about: ClassVar = "what the usual rules do if devices with other data are seldom there"
    quick_seeds: ClassVar = 1

    def runs(self, options: Options) -> Sequence[StudyRun]:
        pairs = [(part, rule) for part in (ALL_COME, ONE_COMES) for rule in rules(options)]
        return [
            _run(part, rule, seed)
            for seed in options.all_seeds
            for part, rule in [*pairs, (NONE_COME, SCAFFOLD)]
        ]

    def judge(self, results: Results, options: Options) -> Findings:
        found = UsualRulesMeasures(results)
        table = StudyTable("rules", "Every rule", found.table(), _TABLE)
        return Findings(claims_of(found), list(checks_of(found)), [_figure(found)], [table], _NOTES)


def rules(options: Options) -> Sequence[str]:
    """The rules that are compared."""
    return [rule for rule in RULES if not (options.quick and rule in _LEFT_OUT)]


def _run(part: str, rule: str, seed: int) -> StudyRun:
    return StudyRun(part, {"rule": rule}, scenario(seed, ROUNDS, rule, part), _EXPECTED_S)


def _figure(found: UsualRulesMeasures) -> StudyFigure:
    parts = (ALL_COME, ONE_COMES)
    biases, predicted = (
        {part: found.by_rule(measure, part) for part in parts} for measure in (BIAS, PREDICTED)
    )
    return StudyFigure(
        "bias",
        "Where every rule ends",
        lambda: draw_bias(biases, predicted),
        "A dot for each seed, and a circle for their mean. The short lines are computed.",
    )


_TABLE = (
    "Means over the seeds. A bias is 0 at the optimum of all devices and 1 at the optimum of the "
    "group that always comes; distances to the optimum of all devices have the same unit, and are "
    "means of the last fifth of the rounds. The predicted bias is computed, for rules whose limit "
    "has a closed form. The loss of seldom is that of the group that is seldom there. After the "
    "round in `settled after` the distance stays near its mean at the end."
)

_NOTES = [
    (
        "14 devices always come and take four local steps in a round. Six others have optima "
        "elsewhere and take two steps; of these six, all come to a round, or one, or none. "
        "Everything else is the same. Gradients are exact."
    ),
    (
        "`noise` and `clipping` are fedavg with `server.privacy`: one with noise and a bound that "
        "no update exceeds, the other with a bound that binds and without noise."
    ),
    (
        "The study says what a rule does in the long run on quadratic functions. It says nothing "
        "about attacks, for which robust rules are made, and its noise is too little for privacy."
    ),
]
