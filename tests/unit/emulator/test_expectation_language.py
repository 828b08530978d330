"""Reading conditions: what the language has, and that nothing else gets in."""

import pytest

from muster.emulator.expectations.facts import FACTS, example_of
from muster.emulator.expectations.language import (
    Before,
    Condition,
    Fact,
    NumberLiteral,
    Operation,
    Overall,
    RoundsUntil,
    facts_of,
    read_condition,
)


def test_a_condition_becomes_a_tree() -> None:
    accuracy = Fact("accuracy")
    expected = Condition((accuracy, Operation("-", Before(accuracy), NumberLiteral(0.02))), (">=",))
    assert read_condition("accuracy >= before - 0.02") == expected


def test_multiplication_comes_before_addition_and_brackets_before_both() -> None:
    one, two, three = map(NumberLiteral, (1.0, 2.0, 3.0))
    loss = Fact("loss")
    sum_last = Condition((Operation("+", one, Operation("*", two, three)), loss), ("<",))
    sum_first = Condition((Operation("*", Operation("+", one, two), three), loss), ("<",))
    assert read_condition("1 + 2 * 3 < loss") == sum_last
    assert read_condition("(1 + 2) * 3 < loss") == sum_first


def test_comparisons_can_be_chained() -> None:
    share = Fact("share", "phones")
    expected = Condition((NumberLiteral(0.2), share, NumberLiteral(0.4)), ("<=", "<="))
    assert read_condition('0.2 <= share("phones") <= 0.4') == expected


def test_before_is_the_value_of_the_one_fact_of_its_comparison() -> None:
    loss = Fact("loss", "phones")
    [_, right] = read_condition('loss("phones") <= before * 1.1').sides
    assert right == Operation("*", Before(loss), NumberLiteral(1.1))


def test_before_with_a_fact_stands_anywhere() -> None:
    [left, right] = read_condition("folded <= before(called)").sides
    assert (left, right) == (Fact("folded"), Before(Fact("called")))


def test_functions_are_about_all_rounds() -> None:
    [left, _] = read_condition("total(lost) <= 3").sides
    assert left == Overall("total", Fact("lost"), "total(lost)")
    [left, _] = read_condition("rounds_until(accuracy >= before) <= 10").sides
    inner = Condition((Fact("accuracy"), Before(Fact("accuracy"))), (">=",))
    assert left == RoundsUntil(inner, "rounds_until(accuracy >= before)")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("", "expected a condition such as"),
        ("accuracy >=", "expected a condition such as"),
        ("accuracy", "expected a comparison"),
        ("accuracy > 0.5 and loss < 1", "expected a comparison"),
        ("acuracy > 0.5", "there is no fact acuracy"),
        ("loss < True", "expected a number, found True"),
        ("loss < '1'", 'expected a number, found "1"'),
        ("loss < 1e999", "expected numbers"),
        ("loss ** 2 < 1", "expected numbers, facts"),
        ("loss in 1", "as comparison"),
        ("(loss < 1) + 1 > 0", "expected a number, found the condition loss < 1"),
        ("share > 0.1", 'expected the name of a group, as in share("phones")'),
        ("share(phones) > 0.1", "with the name of a group"),
        ('bytes("phones") > 1', "bytes is not known by group"),
        ('loss("a", "b") < 1', "with the name of a group"),
        ("total(3) > 1", "expected a fact in total(…)"),
        ("total(lost, late) > 1", "expected one value in total(…)"),
        ("total(mean(lost)) > 1", "expected no function of all rounds inside total"),
        ("mean(before) > loss", "expected before(fact) inside mean(…)"),
        ("rounds_until(loss) < 3", "expected a comparison such as loss < 1, found loss"),
        ("before(3) < loss", "expected a fact"),
        ("before < 1", "has none; write before(accuracy)"),
        ("loss + accuracy < before", "has accuracy, loss; write"),
        ("loss" + " + 1" * 200 + " < 2", "at most 500 letters"),
        ("(" * 240 + "1" + ")" * 240 + " < loss", "expected a condition such as"),
    ],
)
def test_what_is_not_a_condition_is_refused(text: str, mistake: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        read_condition(text)
    assert mistake in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("accuracy = 0.5", "; write == in place of ="),
        ("accuracy => 0.5", "; write >= in place of =>"),
        ("accuracy >= 50%", "; write 0.5 in place of 50 %"),
        ("participation < 12.5 % * 2", "; write 0.125 in place of 12.5 %"),
        ("loss < 50 % 2", "; write 0.5 in place of 50 %"),
        ("accuracy > 0.5 and loss < 1", "; write each condition in an [[expect]] of its own"),
        ("accuracy > 0.5, loss < 1", "; write each condition in an [[expect]] of its own"),
        ("accuracy > 0.5; loss < 1", "; write each condition in an [[expect]] of its own"),
        ("accuracy > 0.5 && loss < 1", "; write each condition in an [[expect]] of its own"),
        ("acuracy > 0.5", "there is no fact acuracy (did you mean accuracy?)"),
        ("totl(lost) < 1", "there is no fact totl (did you mean total?)"),
    ],
)
def test_usual_mistakes_get_a_hint(text: str, hint: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        read_condition(text)
    assert hint in str(refusal.value)


def test_a_text_without_a_usual_mistake_gets_no_hint() -> None:
    with pytest.raises(ValueError, match=r"found 'loss < \('$"):
        read_condition("loss < (")


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true') == 0",
        "().__class__ == 1",
        "loss.real < 1",
        "[loss][0] < 1",
        "(lambda: 1)() < loss",
        "(x := 3) < loss",
        "{1}.pop() < loss",
        "f'{loss}' < 1",
        "loss if 1 else 2 < 3",
        "total(**{}) < 1",
        "open('x') < loss",
        "10 ** 10 ** 10 < loss",
        "loss < 1; loss",
        "loss % 2 < 1",
        "not loss < 1",
    ],
)
def test_python_does_not_get_in(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|there is no fact"):
        read_condition(text)


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(ValueError, match=r"no fact los .*no fact accurcy "):
        read_condition("los < accurcy + 1")


def test_every_fact_can_be_read() -> None:
    for name in FACTS:
        text = example_of(name)
        fact = read_condition(f"{text} > 0").sides[0]
        assert isinstance(fact, Fact)
        assert (fact.name, str(fact)) == (name, text)


def test_a_metric_has_its_name_and_that_of_a_group() -> None:
    condition = read_condition('metric("f1", "phones") >= metric("f1") - 0.1')
    of_group, (whole, *_) = condition.sides[0], facts_of(condition.sides[1])
    assert of_group == Fact("metric", "phones", "f1")
    assert str(of_group) == 'metric("f1", "phones")'
    assert whole == Fact("metric", None, "f1")


@pytest.mark.parametrize(
    "text", ['metric("f1", 2) > 0', 'metric("f1", "a", "b") > 0', 'loss("a", "b") < 1']
)
def test_other_names_of_a_fact_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the name of a group"):
        read_condition(text)


def test_a_metric_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r'name of a metric, as in metric\("f1"\)'):
        read_condition("metric > 0")
