"""A model in a file, for modules that no file of Python defines, such as those of a notebook.

cloudpickle writes classes and functions of a notebook, a script or a folder that is not installed
by value, with all that they refer to. The alternatives lack something: `torch.export` has no
training mode and keeps the size of minibatches, and the source of a class lacks the imports and
functions of other cells.
"""

from __future__ import annotations

import copy
import inspect
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from muster.common.causes import note_own
from muster.common.errors import ConfigError
from muster.common.files import os_reason
from muster.common.own_code import installed
from muster.tasks.model import Model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from torch import nn


def pickled(model: nn.Module | Callable[..., nn.Module]) -> bytes:
    """The content of the file for a model, which is not changed.

    Raises:
        ConfigError: it refers to something that another process cannot have, such as an open file.
    """
    import cloudpickle
    from torch import nn

    if isinstance(model, nn.Module):
        model = _on_cpu(model)
    modules = [*_reached_only_here()]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps((["__main__", *(m.__name__ for m in modules)], model)))
    except Exception as error:  # objects may raise anything here
        why = " ".join(f"{type(error).__name__}: {error}".split())
        if "parametrized modules" in why:
            raise ConfigError(
                "model: torch cannot send a module with a parametrization, such as weight_norm, to "
                "other processes; give a function that makes and returns it"
            ) from None
        raise ConfigError(
            f"model: expected a module or function that can be sent to other processes, found "
            f"{why:.300}; make such objects inside the function or inside `forward`"
        ) from None
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _on_cpu(model: nn.Module) -> nn.Module:
    """The model, or a copy of it, with everything in main memory."""
    values = [*model.parameters(), *model.buffers()]
    return model if all(v.device.type == "cpu" for v in values) else copy.deepcopy(model).cpu()


def _reached_only_here() -> Iterator[ModuleType]:
    """The modules that this process has imported and that are not installed, so that the processes
    of a run might not find them."""
    tops = {name.partition(".")[0] for name in sys.modules} - {"__main__", "__mp_main__"}
    own = {top for top in tops if installed(top) is None}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in own and getattr(module, "__file__", None):
            yield module


class Pickled(Model):
    """A module of your own, or a function that returns one, in a file that `muster.torch` has
    written with cloudpickle.

    A module begins with the values that it has in the file. A function is called without arguments
    or, if it needs them, with the shape of the inputs and the number of outputs; what it draws at
    random comes from the scenario's seed. Reading a pickle executes the code in it, so run only
    files that you trust as you trust a program.
    """

    tried: ClassVar = True

    path: Annotated[str, Field(min_length=1, max_length=4096)]
    """The file; relative to the scenario's file."""

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        from torch import nn

        found = self._read()
        if not isinstance(found, nn.Module) and callable(found):
            found = found(*self._arguments(found, inputs, outputs))
        if not isinstance(found, nn.Module):
            raise ConfigError(
                f"task.model: {self.path} gave {found!r:.100}, expected a torch.nn.Module or a "
                f"function that returns one"
            )
        return found

    def refusal(self, inputs: tuple[int, ...], *, tokens: bool) -> str | None:
        return None

    def _read(self) -> Any:
        try:
            modules, model = pickle.loads(Path(self.path).read_bytes())
            for module in modules:
                note_own(module)
            return model
        except OSError as error:
            why = os_reason(error)
        except Exception as error:  # a pickle may execute anything
            why = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(
            f"task.model: {self.path}: expected a model that muster.torch wrote with the packages "
            f"of this environment, found: {why:.300}; write it again with muster.torch"
        )

    def _arguments(
        self, function: Callable[..., Any], inputs: tuple[int, ...], outputs: int
    ) -> tuple[Any, ...]:
        """The arguments with which a function makes a module."""
        signature = inspect.signature(function)
        for arguments in ((), (inputs, outputs)):
            try:
                signature.bind(*arguments)
            except TypeError:
                continue
            return arguments
        raise ConfigError(
            f"task.model: {self.path} has a function that takes {signature}, expected one that "
            f"takes nothing, or the shape of the inputs and the number of outputs"
        )
