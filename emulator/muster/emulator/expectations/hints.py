"""What a text that is not a condition probably means, for the messages of mistakes."""

import ast
import difflib
import re
from collections.abc import Iterable

_STRINGS = re.compile(r"'[^']*'|\"[^\"]*\"")
_ONE_EQUALS = re.compile(r"(?<![<>=!:])=(?!=)")
_TURNED = re.compile(r"=[<>]")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_AND = re.compile(r";|\n|&|\||\b(and|or|AND|OR)\b")

TWO = "write each condition in an [[expect]] of its own"


def hint_of_text(text: str) -> str:
    """What to do about a text that cannot be read at all; empty if that is not known."""
    bare = _STRINGS.sub("", text)
    if percent := _PERCENT.search(bare):
        value = float(percent[1])
        return f"write {value / 100:g} in place of {value:g} %"
    if _AND.search(bare):
        return TWO
    if turned := _TURNED.search(bare):
        return f"write {turned[0][::-1]} in place of {turned[0]}"
    if _ONE_EQUALS.search(bare):
        return "write == in place of ="
    return ""


def hint_of_node(node: ast.expr) -> str:
    """What to do about an expression that is no comparison, or no part of one; empty if that is not
    known."""
    match node:
        case ast.BoolOp() | ast.Tuple() | ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
            return TWO
        case ast.BinOp(left=ast.Constant(value=int() | float() as value), op=ast.Mod()):
            return f"write {value / 100:g} in place of {value:g} %"
        case ast.Compare(comparators=[*_, ast.Tuple()]):
            return TWO
    return ""


def meant(name: str, known: Iterable[str]) -> str:
    """The known name that is closest to `name`, as a question; empty if none is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def with_hint(mistake: str, hint: str) -> str:
    return f"{mistake}; {hint}" if hint else mistake
