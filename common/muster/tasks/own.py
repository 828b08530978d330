"""A user's own function, named `module:function`, in the place of a plug-in.

Its parameters beyond those that muster gives are its settings: they stand in the scenario beside
its name, and are checked against the function's signature when the scenario is read.

    def make_model(inputs, outputs, *, width: int = 32): ...

    [task]
    model = { kind = "my_code:make_model", width = 64 }
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from inspect import Parameter
from typing import Any, ClassVar, TypeVar

from pydantic import ConfigDict, TypeAdapter, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from muster.common.plugins import Plugin, Registry

P = TypeVar("P", bound=Plugin)


class Own(Plugin):
    """A plug-in that stands for a function; a class per function is made when it is found.

    Attributes:
        function: the user's.
        given: names of what muster gives by position.
        named: names of what muster gives by name.
        takes: names of the function's settings.
        takes_any: whether it takes settings of any name.
    """

    function: ClassVar[Callable[..., Any]]
    given: ClassVar[tuple[str, ...]] = ()
    named: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[frozenset[str]] = frozenset()
    takes_any: ClassVar[bool] = False

    def settings(self) -> dict[str, Any]:
        """What the function is called with beside what muster gives."""
        return {name: getattr(self, name) for name in self.takes} | (self.model_extra or {})


class FunctionRegistry(Registry[P]):
    """A registry in which `module:function` may stand where `module:Class` may.

    Args:
        own: the class that stands for a function; derived from `Own` too.
    """

    def __init__(
        self, noun: str, group: str, built_in: Mapping[str, type[P]], own: type[P]
    ) -> None:
        super().__init__(noun, group, built_in)
        self._own = own

    def _checked(self, kind: str, found: object) -> type[P]:
        if inspect.isroutine(found):
            return own_class(self._own, found, kind)  # type: ignore[return-value]
        return super()._checked(kind, found)


@cache
def own_class(base: type[Own], function: Callable[..., Any], kind: str) -> type[Own]:
    """Return the class that stands for `function`: a field for each of its settings.

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
    for name, parameter in signature.parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            takes_any = True
        elif name not in given and parameter.kind is not Parameter.VAR_POSITIONAL:
            if parameter.kind is Parameter.POSITIONAL_ONLY or name in ("kind", "name"):
                raise ValueError(f"{kind} takes {signature}: {name!r} cannot be a setting")
            takes.add(name)
            if name not in base.model_fields:
                default = ... if parameter.default is Parameter.empty else parameter.default
                fields[name] = (_annotation(parameter), default)
    if takes_any:
        allowing = {"model_config": ConfigDict(extra="allow"), "__module__": __name__}
        base = type(base.__name__, (base,), allowing)
    made = create_model(base.__name__, __base__=base, __module__=__name__, **fields)
    made.function = staticmethod(function)
    made.takes = frozenset(takes)
    made.takes_any = takes_any
    return made


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function, eval_str=True)
    except (NameError, TypeError):  # names that are imported for type checkers only
        return inspect.signature(function)


def _annotation(parameter: Parameter) -> Any:
    """What a setting is checked against; anything where the function does not say."""
    annotation = parameter.annotation
    if annotation is Parameter.empty or isinstance(annotation, str):
        return Any
    try:
        TypeAdapter(annotation)
    except (PydanticSchemaGenerationError, PydanticUserError):
        return Any
    return annotation
