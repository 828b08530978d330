"""The folded updates of every round, as they arrived, or their secure sum, in files of the run
folder.

They let somebody else check the aggregation: `muster audit` makes every version again from them.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from muster.common.files import write_atomic
from muster.server.account.round_files import prepare_round_files, round_file

if TYPE_CHECKING:
    from muster.server.updates.round_updates import PendingUpdate

UPDATES = "updates"
"""Name of the folder in the run folder."""

SUMS = "sums"
"""Name of the folder for secure sums."""


class _RoundFiles:
    """Files of rounds that the server writes before the transaction that commits the round.

    Attributes:
        kind: what follows the dot in their names.

    Args:
        folder: that of the files, in the run folder.
    """

    kind: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, newest: int) -> None:
        """Make the folder, and remove the files of rounds that were never committed.

        Args:
            newest: the newest committed round.
        """
        prepare_round_files(self._folder, self.kind, newest)

    def discard(self, round: int) -> None:
        """Remove the file of a round that turned out to be empty."""
        self._path(round).unlink(missing_ok=True)

    def _path(self, round: int) -> Path:
        return self._folder / round_file(round, self.kind)


class KeptUpdates(_RoundFiles):
    """Writes the updates of each round into a file in safetensors format. It has the body of each
    update as bytes, under the name of its client, and in its metadata the checksum of each body,
    which the device has stated."""

    kind = "safetensors"

    def keep(self, round: int, counted: Sequence["PendingUpdate"]) -> None:
        """Write the updates that count in a round; their bodies must still be open.

        Raises:
            OSError: the disk is full.
        """
        if not counted:
            return
        bodies = [update.body.encoded() for update in counted]
        header: dict[str, object] = {
            "__metadata__": {u.contribution.client: u.update.checksum.hex() for u in counted}
        }
        begin = 0
        for update, body in zip(counted, bodies, strict=True):
            offsets = [begin, begin := begin + len(body)]
            header[update.contribution.client] = {
                "dtype": "U8", "shape": [len(body)], "data_offsets": offsets,
            }  # fmt: skip
        text = json.dumps(header).encode()
        length = len(text).to_bytes(8, "little")
        write_atomic(self._path(round), length, text, *bodies, durable=True)


class KeptSums(_RoundFiles):
    """Writes the secure sums of each round (`muster.common.secure.padded.PaddedSum.encoded`), one
    after the other in the order of `muster.server.updates.formats.UpdateFormats.parts`."""

    kind = "bin"

    def keep(self, round: int, sums: Sequence[bytes]) -> None:
        """Write the sums of the updates that count in a round.

        Raises:
            OSError: the disk is full.
        """
        write_atomic(self._path(round), *sums, durable=True)


def kept_name(round: int) -> str:
    """Return the file name of a round's updates."""
    return round_file(round, KeptUpdates.kind)


def sum_name(round: int) -> str:
    """Return the file name of a round's secure sum."""
    return round_file(round, KeptSums.kind)
