"""The calls of one message, and the model that belongs to them."""

from collections.abc import Sequence

from muster.client.connection.attendance import Attendance
from muster.client.connection.link import ServerLink
from muster.client.device.training_config import DownloadTimes, TrainingConfig
from muster.common.clock import Clock
from muster.common.exchange import Call, ToDevice


class CallBatch:
    """The calls of one message, and what is needed to handle them.

    Attributes:
        model: body of what the devices download, which is the same for all of the calls; None until
            it is here. It comes with the calls, or is fetched once for all of them.
        sum_request: the calls ask for the sum of held updates; None: they ask for answers.
    """

    __slots__ = ("attendance", "calls", "link", "model", "sum_request", "work")

    def __init__(
        self,
        message: ToDevice,
        attendance: Attendance,
        link: ServerLink,
        work: TrainingConfig,
    ) -> None:
        self.calls, self.model, self.sum_request = message.calls, message.model, message.sum_request
        self.attendance = attendance
        self.link = link
        self.work = work

    def only(self, calls: Sequence[Call]) -> "CallBatch":
        """Some of the calls, by themselves."""
        message = ToDevice(model=self.model, calls=calls)
        return CallBatch(message, self.attendance, self.link, self.work)

    async def fetch(
        self, call: Call, length: int, clock: Clock, at: float, asked: float
    ) -> DownloadTimes | None:
        """Fetch the model and return its download; None if the server no longer has the version.

        Args:
            length: bytes of what the devices of the calls download.
            at, asked: UNIX and monotonic seconds at which the device began to wait for the model.
        """
        if (fetched := await self.link.fetch(call, length)) is None:
            return None
        self.model, came_at = fetched
        return DownloadTimes(at, came_at - asked, clock.monotonic() - asked)
