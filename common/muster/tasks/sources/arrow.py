"""Tables in files of Apache Arrow: Parquet, and data sets of Hugging Face."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from muster.common.errors import ConfigError, listed
from muster.tasks.sources.contract import Text, refused
from muster.tasks.sources.hub import copy_of
from muster.tasks.sources.table import Columns, DataTable


class Parquet(DataTable):
    """A Parquet file, or a folder of several with the same columns.

    All columns that a model gets have numbers, or lists of equally many numbers.
    """

    needs = "pyarrow", "parquet"

    test_path: Text | None = None
    """A file or folder with the examples for testing, with the same columns; relative to the
    scenario file."""

    def paths(self) -> list[str]:
        return [self.path] if self.test_path is None else [self.path, self.test_path]

    def tables(self) -> tuple[Columns, Columns | None]:
        test = None if self.test_path is None else _columns(self.test_path)
        return _columns(self.path), test


def _columns(path: str) -> Columns:
    import pyarrow as pa  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import pyarrow.parquet as pq  # type: ignore[import-not-found,import-untyped,unused-ignore]

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        why = " ".join(str(error).split())
        raise refused(path, "a Parquet file", f"{why:.200}") from None
    values = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        values[name] = column.to_numpy()
    if not len(table):
        raise refused(path, "rows with examples", "none")
    return Columns(values, path)


_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

_PARTITION = "partition"
"""The column with the names of several data sets."""


class SavedDataset(DataTable):
    """A data set of the package `datasets` (Hugging Face): in the folder to which its
    `save_to_disk` wrote it, or one of the hub, by its name.

    Columns that a model gets have pictures, numbers, or lists of equally many numbers. The path may
    also be a folder of several data sets with the same columns, for example the partitions of
    `flwr-datasets`; with `user = "partition"` their names are the users. The command downloads a
    data set of the hub before it starts anything, unless the cache of Hugging Face has it. The
    scenario in the run folder has its path there and its revision.
    """

    needs = "datasets", "datasets"
    hint = '; hub = "OWNER/NAME" names a data set of the Hugging Face hub'

    path: Text = ""
    """The folder; relative to the scenario file. Absent: hub names the data set."""

    hub: Text | None = None
    """The name of a data set of the Hugging Face hub, with that of its owner, for example
    `ylecun/mnist`."""

    configuration: Annotated[str, Field(pattern=r"^[^./\\][^/\\]*$", max_length=200)] | None = None
    """The configuration, of a data set of the hub that has several."""

    revision: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """The commit, branch or tag of a data set of the hub. Absent: the newest commit, which the run
    keeps."""

    split: Text = "train"
    """The split for training, if there are several."""

    test_split: Text = "test"
    """The split for testing; it may be missing."""

    @field_validator("hub")
    @classmethod
    def _has_an_owner(cls, hub: str | None) -> str | None:
        if hub is not None and (not _HUB_NAME.fullmatch(hub) or "--" in hub or ".." in hub):
            raise ValueError(
                f"expected OWNER/NAME, as the page of the data set has it, for example "
                f"ylecun/mnist, found {hub!r:.200}"
            )
        return hub

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if not (self.path or self.hub):
            raise ValueError("expected path, a folder, or hub, the name of a data set of the hub")
        if self.hub is None and (self.configuration or self.revision):
            raise ValueError("configuration and revision are of a data set of the hub; give hub")
        if self.hub and self.path and Path(self.path).name != self.revision:
            raise ValueError("expected path, a folder, or hub, found both; leave one of them out")
        return self

    @property
    def where(self) -> str:
        return self.hub or self.path

    def fetched(self) -> Mapping[str, str]:
        if self.hub is None or (self.path and Path(self.path).exists()):
            return {}
        self.require_package()
        found = copy_of(self.hub, self.configuration, self.revision)
        if self.path and found.path != self.path:
            raise refused(
                self.hub,
                f"{self.path}, which the run began with",
                found.path,
                "set HF_HOME as it was then",
            )
        return found._asdict()

    def check(self) -> None:
        if not self.path:
            raise ConfigError(f"task.source: {self.hub} is not downloaded; see `fetched`")
        super().check()

    def tables(self) -> tuple[Columns, Columns | None]:
        import datasets  # type: ignore[import-not-found,import-untyped,unused-ignore]

        try:
            found = self._loaded()
        except (OSError, ValueError) as error:
            why = " ".join(str(error).split())
            raise refused(self.path, "a folder of Dataset.save_to_disk", f"{why:.200}") from None
        if not isinstance(found, datasets.DatasetDict):
            return self._split(found, self.where), None
        if self.split not in found:
            raise refused(self.where, f"a split {self.split!r}", listed(list(found)))
        train = self._split(found[self.split], f"{self.where}, split {self.split}")
        if self.test_split not in found:
            return train, None
        place = f"{self.where}, split {self.test_split}"
        return train, self._split(found[self.test_split], place)

    def _loaded(self) -> Any:
        """The data set, or those of the partitions one after the other."""
        import datasets

        partitions = [path.parent for path in Path(self.path).glob("*/state.json")]
        if not partitions or (Path(self.path) / "dataset_dict.json").exists():
            return datasets.load_from_disk(self.path)
        found = []
        for path in sorted(partitions):
            loaded = datasets.load_from_disk(str(path))
            if self.user == _PARTITION:
                loaded = loaded.add_column(_PARTITION, [path.name] * len(loaded))
            found.append(loaded)
        return datasets.concatenate_datasets(found)

    def _split(self, found: Any, place: str) -> Columns:
        if not len(found):
            raise refused(place, "rows with examples", "none")
        used = {*(self.features or ()), self.label, *([self.user] if self.user else ())}
        if self.features and used <= set(found.column_names):
            found = found.select_columns(sorted(used))  # others may need packages to be read
        try:
            values = found.with_format("numpy")[:]
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            why = " ".join(str(error).split())
            mend = "name the columns that a model gets in task.source.features"
            raise refused(place, "columns that can be read", f"{why:.200}", mend) from None
        for name, feature in found.features.items():
            column, kind = values[name], type(feature).__name__
            if kind == "Image" and getattr(column, "ndim", 0) == 4:
                values[name] = np.moveaxis(column, 3, 1)  # channels first, as torch has them
            elif kind == "ClassLabel" and name == self.label and np.any(np.asarray(column) == -1):
                raise refused(
                    f"{place}, column {name}",
                    "the label of each example",
                    "-1, which stands for an unknown one",
                    "name a split that has labels in task.source.test_split, or in split",
                )
        return Columns(values, place)
