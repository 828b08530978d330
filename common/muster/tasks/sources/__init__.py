"""Sources of data of the user's own. The contract is in `contract`."""

from typing import Annotated

from pydantic import BeforeValidator, SerializeAsAny

from muster.common.plugins import Registry
from muster.tasks.sources.arrays import Arrays
from muster.tasks.sources.arrow import Parquet, SavedDataset
from muster.tasks.sources.contract import DataSource, LabelledRows
from muster.tasks.sources.delimited import Csv
from muster.tasks.sources.pictures import Pictures

BUILT_IN: dict[str, type[DataSource]] = {
    "csv": Csv,
    "datasets": SavedDataset,
    "folder": Pictures,
    "npz": Arrays,
    "parquet": Parquet,
}
SOURCES = Registry("source", "muster.sources", BUILT_IN)
AnySource = Annotated[SerializeAsAny[DataSource], BeforeValidator(SOURCES.parse)]
"""A source as a setting."""

__all__ = ["BUILT_IN", "SOURCES", "AnySource", "DataSource", "LabelledRows"]
