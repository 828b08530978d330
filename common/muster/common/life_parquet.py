"""Life records as Parquet files, which need the extra `parquet`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.common.errors import ConfigError, reason_of
from muster.common.files import write_atomic
from muster.common.installation import install_command

_HEADER = b"muster life record"
"""The key of the header in the metadata of the file."""


def write_parquet(
    path: Path,
    header: str,
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
    types: Mapping[str, type],
) -> None:
    """Write rows with a header.

    Args:
        types: int, float or str, by the name of the column.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    pa, pq = _arrow(path)
    kinds = {int: pa.int64(), float: pa.float64(), str: pa.string()}
    fields = [pa.field(name, kinds[types[name]]) for name in names]
    schema = pa.schema(fields, metadata={_HEADER: header.encode()})
    columns = [[row[place] for row in rows] for place in range(len(names))]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, schema=schema), sink, compression="zstd")
    write_atomic(path, sink.getvalue().to_pybytes())


def read_parquet(path: Path, names: Sequence[str]) -> tuple[str, list[tuple[Any, ...]]]:
    """The header and the rows of a file.

    Raises:
        ConfigError: pyarrow is not installed, or the file is not one of `write_parquet`.
    """
    pa, pq = _arrow(path)
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"{path}: expected a life record: {reason_of(error)}") from None
    metadata = table.schema.metadata or {}
    if _HEADER not in metadata or table.column_names != list(names):
        raise ConfigError(
            f"{path}: expected a life record with the columns {', '.join(names)}, found a Parquet "
            f"file with {', '.join(table.column_names)}; muster life export writes one"
        )
    columns = [column.to_pylist() for column in table.columns]
    return metadata[_HEADER].decode(), list(zip(*columns, strict=True))


def _arrow(path: Path) -> tuple[Any, Any]:
    try:
        import pyarrow as pa  # type: ignore[import-not-found,import-untyped,unused-ignore]
        import pyarrow.parquet as pq  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ModuleNotFoundError:
        raise ConfigError(
            f"{path}: Parquet needs pyarrow; run `{install_command('parquet')}`, or take a .csv.gz "
            f"file"
        ) from None
    return pa, pq
