"""The bases of rules: what each answers, and how a class says which it has."""

from pathlib import Path
from textwrap import dedent

import pytest

from muster.server.aggregators import (
    AGGREGATORS,
    Aggregator,
    Combining,
    Recalling,
    Remembering,
    Requirement,
    Stepping,
    Strategy,
)

OWN = iter(range(100))


def own(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """Write a rule of a user; return the name of its module."""
    name = f"rule_of_a_base_{next(OWN)}"
    (folder / f"{name}.py").write_text(dedent(text))
    monkeypatch.syspath_prepend(str(folder))
    return name


@pytest.mark.parametrize(
    ("base", "answers"),
    [
        (Aggregator, {"adds_up"}),
        (Stepping, {"adds_up"}),
        (Combining, {"computes_long"}),
        (Remembering, {"remembers"}),
        (Recalling, {"remembers", "makes_every_version"}),
        (Strategy, {"runs_strategy"}),
    ],
)
def test_each_base_answers_for_its_rules(base: type[Aggregator], answers: set[str]) -> None:
    class Rule(base):  # type: ignore[misc, valid-type]
        masks = True

        def step(self, mean: object, state: object) -> object:
            return mean, state

        def combine(self, updates: object, counted: int) -> object:
            return updates

    rule: Aggregator = Rule(kind="own")
    questions = {
        "adds_up", "computes_long", "remembers", "makes_every_version", "runs_strategy",
    }  # fmt: skip
    assert {name for name in questions if getattr(rule, name)()} == answers
    assert rule.adds_parts() == (base is Aggregator)
    required = rule.requires()
    assert (Requirement.EACH_UPDATE in required) == ("adds_up" not in answers)
    assert (Requirement.STRATEGY in required) == ("runs_strategy" in answers)


@pytest.mark.parametrize(
    ("line", "base"),
    [
        ('change = "sum"', "Aggregator"),
        ('change = "step"', "Stepping"),
        ('change: ClassVar = "combination"', "Combining"),
        ('change: ClassVar[str] = "memory"', "Remembering"),
        ('change = "recall"', "Recalling"),
        ('change = "strategy"', "Strategy"),
        ('change = "other"', "one of Aggregator, Stepping, "),
    ],
)
def test_a_rule_that_still_sets_change_is_told_its_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, base: str
) -> None:
    module = own(
        tmp_path,
        monkeypatch,
        f"""
        from typing import ClassVar
        from muster.server.aggregators import Aggregator

        class Mine(Aggregator):
            {line}
        """,
    )
    with pytest.raises(ValueError, match="sets change = ") as found:
        AGGREGATORS.parse(f"{module}:Mine")
    assert f"derive it from muster.server.aggregators.{base}" in str(found.value)


def test_a_rule_that_derives_from_the_aggregator_is_a_weighted_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = own(
        tmp_path,
        monkeypatch,
        """
        from muster.server.aggregators import Aggregator

        class Mine(Aggregator):
            def weight(self, contribution, state):
                return 1.0
        """,
    )
    rule = AGGREGATORS.parse(f"{module}:Mine")
    assert isinstance(rule, Aggregator)
    assert rule.adds_up()
    assert rule.folds_on_arrival()


@pytest.mark.parametrize(("base", "method"), [("Stepping", "step"), ("Combining", "combine")])
def test_a_rule_without_the_method_of_its_base_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: str, method: str
) -> None:
    module = own(
        tmp_path,
        monkeypatch,
        f"""
        from muster.server.aggregators import {base}

        class Mine({base}):
            pass
        """,
    )
    with pytest.raises(ValueError, match=f"'{module}:Mine' does not define {method}"):
        AGGREGATORS.parse(f"{module}:Mine")
