"""Functions of users that say how each device trains: `training.by_device = "module:function"`.

    def by_device(client: str, examples: int) -> dict:
        return {"batch_size": 8, "local_epochs": 5} if examples < 100 else {}

The emulator and the device call it, each in a program of its own, so it has to return the same for
the same device.
"""

from abc import abstractmethod
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, SerializeAsAny

from muster.common.plugins import Plugin
from muster.tasks.own import FunctionRegistry, Own


class ByDevice(Plugin):
    """What differs in the training of single devices."""

    @abstractmethod
    def of(self, client: str, examples: int) -> Any:
        """Return a table of settings (`muster.client.training.settings.DeviceTraining`).

        Args:
            client: name of the device.
            examples: number of its training examples, at least 1.
        """


class OwnByDevice(ByDevice, Own):
    """A function of the user's, and its settings."""

    given: ClassVar = ("client", "examples")

    def of(self, client: str, examples: int) -> Any:
        return self.function(client, examples, **self.settings())


BY_DEVICE: FunctionRegistry[ByDevice] = FunctionRegistry(
    "function by device", "muster.by_device", {}, OwnByDevice
)
AnyByDevice = Annotated[SerializeAsAny[ByDevice], BeforeValidator(BY_DEVICE.parse)]
"""Such a function as a setting."""
