"""Features of covariates, which make up b(Z), and the way people write them.

z1           a column as it is; each level of a word is a column of its own, os=15
z1 > 0.5     1 if that holds, else 0; also >=, <, <=
z1 ^ 2       its square
z1 * os=15   the product of two columns
"""

import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Self

from muster.common.seeds import BoolArray, FloatArray

_COMPARISONS: Final[dict[str, Callable[[FloatArray, float], BoolArray]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}

# A level may have spaces, but no sign between spaces: os=Android 15 * z1 is a product.
_NAME = r"[A-Za-z_][A-Za-z0-9_]*(?:=[^ ]+(?: (?!(?:>=|<=|[><^*]) )[^ ]+)*)?"
_FORM = re.compile(rf"({_NAME})(?: *(>=|<=|[><^*]) *(.+))?")


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature: a number that is computed from a device's covariates.

    Attributes:
        column: the first covariate.
        sign: the operation; "" for none.
        other: the number to compare with, the power, or the other covariate; as text.
    """

    column: str
    sign: str = ""
    other: str = ""

    @classmethod
    def parse(cls, text: str, columns: Collection[str] = ()) -> Self:
        """Read a feature. Spaces around its sign may be left out, except after a word's level.

        Args:
            columns: the existing columns. A text that is the name of a column means that column,
                even if the name contains signs.

        Raises:
            ValueError: `text` is not a feature; the message shows what features look like.
        """
        if text in columns:
            return cls(text)
        found = _FORM.fullmatch(text.strip())
        if found is None:
            raise ValueError(
                f"{text!r} is no feature of covariates; expected for example 'z1', 'z1 > 0.5', "
                f"'z1 ^ 2' or 'z1 * z2', a word's level as 'os=15'"
            )
        column, sign, other = (part or "" for part in found.groups())
        if sign in _COMPARISONS:
            other = _number(text, other)
        elif sign == "^" and other != "2":
            raise ValueError(f"{text!r}: the only power is 2, found {other!r}")
        elif sign == "*" and not re.fullmatch(_NAME, other):
            raise ValueError(f"{text!r}: expected a covariate after *, found {other!r}")
        feature = cls(column, sign, other)
        return cls(feature.text) if feature.text in columns else feature

    @property
    def text(self) -> str:
        """The feature as it is written: equal features have equal texts."""
        return f"{self.column} {self.sign} {self.other}" if self.sign else self.column

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of covariates that the feature reads."""
        return (self.column, self.other) if self.sign == "*" else (self.column,)

    def of(self, columns: Mapping[str, FloatArray]) -> FloatArray:
        """The value of the feature for each of n devices, shape (n,).

        Args:
            columns: covariates by name, each of shape (n,); at least those of `self.columns`.
        """
        values = columns[self.column]
        if self.sign in _COMPARISONS:
            return _COMPARISONS[self.sign](values, float(self.other)).astype(float)
        if self.sign == "^":
            return values * values
        return values * columns[self.other] if self.sign == "*" else values


def _number(text: str, found: str) -> str:
    """A finite number in its shortest form."""
    try:
        number = float(found)
    except ValueError:
        number = float("nan")
    if not abs(number) < float("inf"):
        raise ValueError(f"{text!r}: expected a number to compare with, found {found!r}")
    return repr(number + 0.0).removesuffix(".0")  # -0 is 0
