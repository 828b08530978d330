"""Users' own functions, named `module:function`, as plug-ins.

Parameters of the function for which muster has no argument are its settings. A scenario has them
beside the function's name. They are checked against its signature when the scenario is read.

    def make_model(inputs, outputs, *, width: int = 32): ...

    [task]
    model = { kind = "my_code:make_model", width = 64 }
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from inspect import Parameter
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from pydantic import ConfigDict, TypeAdapter, create_model, model_validator
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import PydanticSerializationError

from muster.common.plugins import Plugin, Registry

P = TypeVar("P", bound=Plugin)


class Own(Plugin):
    """A plug-in that wraps a user's own function. A subclass is made for every function.

    Attributes:
        function: the user's function.
        given: names of the arguments that muster passes by position.
        named: names of the arguments that muster passes by name.
        offered: names of the arguments that muster passes by name if the function has parameters
            of these names.
        wants: those of `offered` that the function has.
        takes: names of the function's settings.
        takes_any: whether the function takes settings of any name.
    """

    function: ClassVar[Callable[..., Any]]
    given: ClassVar[tuple[str, ...]] = ()
    named: ClassVar[tuple[str, ...]] = ()
    offered: ClassVar[tuple[str, ...]] = ()
    wants: ClassVar[frozenset[str]] = frozenset()
    takes: ClassVar[frozenset[str]] = frozenset()
    takes_any: ClassVar[bool] = False

    @model_validator(mode="after")
    def _can_be_sent(self) -> Self:
        """Every process gets the settings as JSON."""
        for name, value in self.settings().items():
            try:
                TypeAdapter(Any).dump_json(value)
            except PydanticSerializationError:
                raise ValueError(
                    f"{name}: expected a number, text, list or table, as a scenario can have, "
                    f"found {' '.join(repr(value).split()):.60} ({type(value).__name__}); give a "
                    f"list or a name, and make the value of it in the function"
                ) from None
        return self

    @model_validator(mode="after")
    def _none_of_muster(self) -> Self:
        """Refuse settings by the names of what muster passes, which a function with `**settings`
        would take."""
        passed = {*self.given, *self.named, *self.wants}
        if taken := sorted(passed & (self.model_extra or {}).keys()):
            raise ValueError(
                f"muster passes {', '.join(taken)} to {self.kind}; expected other names of "
                f"settings, leave {'them' if len(taken) > 1 else 'it'} out"
            )
        return self

    def settings(self) -> dict[str, Any]:
        """The settings with which the function is called, beside muster's own arguments."""
        return {name: getattr(self, name) for name in self.takes} | (self.model_extra or {})


class FunctionRegistry(Registry[P]):
    """A registry that accepts `module:function` as well as `module:Class`.

    A class that is no plug-in counts as a function that makes its objects, for example a
    `torch.nn.Module` as a model.

    Args:
        own: the class that wraps a function; also derived from `Own`.
    """

    def __init__(
        self, noun: str, group: str, built_in: Mapping[str, type[P]], own: type[P]
    ) -> None:
        super().__init__(noun, group, built_in)
        self._own = own

    def _checked(self, kind: str, found: object) -> type[P]:
        plug_in = isinstance(found, type) and issubclass(found, Plugin)
        if callable(found) and not plug_in:
            return own_class(self._own, found, kind)  # type: ignore[return-value]
        return super()._checked(kind, found)


@cache
def own_class(base: type[Own], function: Callable[..., Any], kind: str) -> type[Own]:
    """Return a class that wraps `function`, with a field for each of its settings.

    Raises:
        ValueError: the function cannot be called as muster calls it.
    """
    signature = _signature(function)
    expected = ", ".join([*base.given, *base.named, "**settings"])
    try:
        given = signature.bind_partial(*base.given, **dict.fromkeys(base.named)).arguments
    except TypeError as error:
        raise ValueError(
            f"{kind} takes {signature}, expected a function of ({expected}): {error}"
        ) from None
    fields: dict[str, Any] = {}
    takes, takes_any = set(), False
    wants = frozenset(base.offered) & signature.parameters.keys()
    for name, parameter in signature.parameters.items():
        if name in wants:
            continue
        if parameter.kind is Parameter.VAR_KEYWORD:
            takes_any = True
        elif name not in given and parameter.kind is not Parameter.VAR_POSITIONAL:
            if parameter.kind is Parameter.POSITIONAL_ONLY or name in ("kind", "name"):
                raise ValueError(f"{kind} takes {signature}: {name!r} cannot be a setting")
            takes.add(name)
            if name not in base.model_fields:
                default = ... if parameter.default is Parameter.empty else parameter.default
                plain = default.item() if isinstance(default, np.generic) else default
                fields[name] = (_annotation(parameter), plain)
    if takes_any:
        allowing = {"model_config": ConfigDict(extra="allow"), "__module__": __name__}
        base = type(base.__name__, (base,), allowing)
    made = create_model(base.__name__, __base__=base, __module__=__name__, **fields)
    made.function = staticmethod(function)
    made.wants = wants
    made.takes = frozenset(takes)
    made.takes_any = takes_any
    return made


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function, eval_str=True)
    except (NameError, TypeError):  # annotations with names that only type checkers import
        return inspect.signature(function)


def _annotation(parameter: Parameter) -> Any:
    """The type of a setting; `Any` if the function has no usable annotation for it."""
    annotation = parameter.annotation
    if annotation is Parameter.empty or isinstance(annotation, str):
        return Any
    try:
        TypeAdapter(annotation)
    except (PydanticSchemaGenerationError, PydanticUserError):
        return Any
    return annotation
