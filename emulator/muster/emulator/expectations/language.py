"""The language of conditions: reads a text such as `accuracy >= before - 0.02` into a tree.

Python's parser reads the text, and this module accepts a few kinds of nodes and refuses all others.
Nothing is ever evaluated by Python.

    condition  = number-expression (("<" | "<=" | ">" | ">=" | "==" | "!=") number-expression)+
    expression = number | fact | before | before(fact) | function(expression)
               | rounds_until(condition) | expression (+ | - | * | /) expression | -expression
    fact       = name | name("group") | metric("name") | metric("name", "group")
"""

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from muster.emulator.expectations.facts import FACTS, METRIC, example_of
from muster.emulator.expectations.hints import hint_of_node, hint_of_text, meant, with_hint

BEFORE, ROUNDS_UNTIL = "before", "rounds_until"

FUNCTIONS = ("total", "mean", "least", "most")
"""The functions that make one number of an expression over all rounds that are judged."""

MOST_LETTERS = 500
"""Longest text of a condition. It also bounds how deeply a tree is nested."""

_LARGEST = 1e300

ARITHMETIC: Mapping[str, Callable[[float, float], float]] = MappingProxyType(
    {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "/": lambda left, right: left / right if right else math.nan,
    }
)
COMPARISONS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
        "==": operator.eq,
        "!=": operator.ne,
    }
)

_SIGNS: Mapping[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip


@dataclass(frozen=True)
class NumberLiteral:
    """A number that the text states."""

    value: float


@dataclass(frozen=True)
class Fact:
    """The value of a fact in the round that is judged, of all devices or of one group.

    Attributes:
        metric: the name of the task's metric that it is about, of a fact about one.
    """

    name: str
    group: str | None = None
    metric: str | None = None

    def __str__(self) -> str:
        names = ", ".join(f'"{name}"' for name in (self.metric, self.group) if name is not None)
        return f"{self.name}({names})" if names else self.name


@dataclass(frozen=True)
class Before:
    """The value of a fact in the last round before the fault that has one."""

    fact: Fact

    def __str__(self) -> str:
        return f"{BEFORE}({self.fact})"


@dataclass(frozen=True)
class Overall:
    """A function of the values of an expression in all rounds that are judged."""

    function: str
    of: "Expression"
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class RoundsUntil:
    """The number of rounds until a condition holds for the first time; 1 if it does in the first of
    the rounds that are judged, infinite if it never does."""

    condition: "Condition"
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Operation:
    """Arithmetic on two expressions."""

    sign: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True)
class Condition:
    """A condition: expressions with a comparison between each and the next."""

    sides: tuple["Expression", ...]
    signs: tuple[str, ...]


Expression = NumberLiteral | Fact | Before | Overall | RoundsUntil | Operation
Measured = Fact | Before | Overall | RoundsUntil
"""The parts of a condition whose values come from the run."""


def read_condition(text: str) -> Condition:
    """Return the tree of a condition.

    Raises:
        ValueError: the text is not a condition; the message names every mistake.
    """
    if len(text) > MOST_LETTERS:
        raise ValueError(f"expected at most {MOST_LETTERS} letters, found {len(text)}")
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        mistake = f"expected a condition such as accuracy >= before - 0.02, found {text!r}"
        raise ValueError(with_hint(mistake, hint_of_text(text))) from None
    reader = _Reader()
    condition = reader.condition(node)
    if reader.mistakes or condition is None:
        raise ValueError("; ".join(dict.fromkeys(reader.mistakes)))
    return condition


class _Reader:
    """Turns Python's nodes into a tree, and collects the mistakes.

    After a mistake, a node becomes the number 0, so that the other mistakes are found too.
    """

    def __init__(self) -> None:
        self.mistakes: list[str] = []

    def condition(self, node: ast.expr) -> Condition | None:
        if not isinstance(node, ast.Compare):
            mistake = f"expected a comparison such as loss < 1, found {_text(node)}"
            self._mistake(mistake, hint_of_node(node))
            return None
        signs = [_SIGNS.get(type(sign), "") for sign in node.ops]
        if "" in signs:
            self._mistake(f"expected {' '.join(COMPARISONS)} as comparison, found {_text(node)}")
        nodes = [node.left, *node.comparators]
        bare = [each for side in nodes for each in _bare_befores(side)]
        sides = tuple(self.expression(side) for side in nodes)
        if bare:
            sides = self._resolve(sides, _text(node))
        return Condition(sides, tuple(signs))

    def expression(self, node: ast.expr) -> Expression:
        match node:
            case ast.Constant(value=bool() | str() | bytes()):
                self._mistake(f"expected a number, found {_text(node)}")
            case ast.Constant(value=int() | float() as value) if abs(value) < _LARGEST:
                return NumberLiteral(float(value))
            case ast.Name(id=name) if name == BEFORE:
                return Before(Fact(""))
            case ast.Name():
                return self._fact(node) or NumberLiteral(0.0)
            case ast.Call():
                return self._call(node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return Operation("-", NumberLiteral(0.0), self.expression(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _SIGNS:
                sides = self.expression(left), self.expression(right)
                return Operation(_SIGNS[type(op)], *sides)
            case ast.Compare():
                self._mistake(f"expected a number, found the condition {_text(node)}")
            case _:
                mistake = f"expected numbers, facts, + - * / and comparisons, found {_text(node)}"
                self._mistake(mistake, hint_of_node(node))
        return NumberLiteral(0.0)

    def _call(self, node: ast.Call) -> Expression:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in (BEFORE, ROUNDS_UNTIL, *FUNCTIONS):
            return self._fact(node) or NumberLiteral(0.0)
        if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
            self._mistake(f"expected one value in {name}(…), found {_text(node)}")
            return NumberLiteral(0.0)
        [inner] = node.args
        if name == BEFORE:
            fact = self._fact(inner)
            return Before(fact) if fact is not None else NumberLiteral(0.0)
        if name == ROUNDS_UNTIL:
            condition = self.condition(inner)
            return (
                RoundsUntil(condition, _text(node)) if condition is not None else NumberLiteral(0.0)
            )
        of = self.expression(inner)
        if any(_bare_befores(inner)):
            self._mistake(f"expected before(fact) inside {name}(…), found {_text(node)}")
        parts = list(measured_parts(of))
        if any(isinstance(part, Overall | RoundsUntil) for part in parts):
            self._mistake(f"expected no function of all rounds inside {name}(…): {_text(node)}")
        elif not any(isinstance(part, Fact) for part in parts) and not self.mistakes:
            self._mistake(f"expected a fact in {name}(…), found {_text(node)}")
        return Overall(name, of, _text(node))

    def _fact(self, node: ast.expr) -> Fact | None:
        match node:
            case ast.Name(id=name):
                names = []
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if 0 < len(args) <= (
                2 if name == METRIC else 1
            ) and all(map(_is_text, args)):
                names = [ast.literal_eval(arg) for arg in args]
            case ast.Call(func=ast.Name(id=name)) if name not in FACTS:
                self._mistake(_unknown_fact(name))
                return None
            case _:
                self._mistake(
                    f'expected a fact, or a fact with the name of a group as in share("phones"), '
                    f"found {_text(node)}"
                )
                return None
        if name not in FACTS:
            self._mistake(_unknown_fact(name))
            return None
        if not names and example_of(name) != name:
            what = "a metric" if name == METRIC else "a group"
            self._mistake(f"expected the name of {what}, as in {example_of(name)}")
        metric = names.pop(0) if names and name == METRIC else None
        if names and FACTS[name].of_group == "never":
            self._mistake(f"{name} is not known by group, found {_text(node)}")
        return Fact(name, names[0] if names else None, metric)

    def _resolve(self, sides: tuple[Expression, ...], text: str) -> tuple[Expression, ...]:
        """Give every bare `before` the one fact of its comparison."""
        parts = [part for side in sides for part in measured_parts(side)]
        facts = {part for part in parts if isinstance(part, Fact)}
        if len(facts) != 1:
            found = ", ".join(sorted(map(str, facts))) or "none"
            self._mistake(
                f"before means the value of the one fact of its comparison, but {text} has "
                f"{found}; write before(accuracy), or whichever fact you mean"
            )
            return sides
        [fact] = facts
        return tuple(_with_before(side, fact) for side in sides)

    def _mistake(self, sentence: str, hint: str = "") -> None:
        self.mistakes.append(with_hint(sentence, hint))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _unknown_fact(name: str) -> str:
    known = [*FACTS, *FUNCTIONS, BEFORE, ROUNDS_UNTIL]
    return f"there is no fact {name}{meant(name, known)}; there are: {', '.join(known)}"


def _bare_befores(node: ast.expr) -> Iterator[ast.Name]:
    """The names `before` in an expression that name no fact, outside inner conditions."""
    if isinstance(node, ast.Compare):
        return
    if isinstance(node, ast.Name) and node.id == BEFORE:
        yield node
    inner: Sequence[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call):
        inner = node.args
    for child in inner:
        if isinstance(child, ast.expr):
            yield from _bare_befores(child)


def _with_before(expression: Expression, fact: Fact) -> Expression:
    match expression:
        case Before(fact=Fact(name="")):
            return Before(fact)
        case Operation(sign, left, right):
            return Operation(sign, _with_before(left, fact), _with_before(right, fact))
        case _:
            return expression


def measured_parts(node: Expression | Condition) -> Iterator[Measured]:
    """The measured parts of a tree, from left to right, without what is inside functions."""
    match node:
        case Condition(sides=sides):
            for side in sides:
                yield from measured_parts(side)
        case Operation(left=left, right=right):
            yield from measured_parts(left)
            yield from measured_parts(right)
        case Fact() | Before() | Overall() | RoundsUntil():
            yield node
        case NumberLiteral():
            pass


def facts_of(node: Expression | Condition) -> Iterator[Fact | Before]:
    """The facts of a tree and of what is inside its functions, from left to right."""
    for part in measured_parts(node):
        match part:
            case Overall(of=inner):
                yield from facts_of(inner)
            case RoundsUntil(condition=inner):
                yield from facts_of(inner)
            case Fact() | Before():
                yield part


def _text(node: ast.AST) -> str:
    """The text of a node, with the quotation marks that facts are shown with."""
    return ast.unparse(node).replace("'", '"')
