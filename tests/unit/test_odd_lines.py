"""One bad cell in a large recording is found before all of it is read cell by cell."""

from pathlib import Path

import pytest

from muster.common import recorded_lines
from muster.common.rates.formats import table
from muster.common.rates.reading import read_recording
from muster.common.recorded_lines import Line, odd_lines

HEADER = "seconds,down Mbit/s\n"
ROWS = "".join(f"{second},{second % 7}.5\n" for second in range(500))


def never(*_: object) -> None:
    raise AssertionError("read cell by cell")


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("abc", "expected a number in 'down Mbit/s', found 'abc'"),
        ("nan", "found 'nan'"),
        ("-4", "expected at least 0 in 'down Mbit/s', found '-4'"),
        ("99999999", "expected at most 1e+12 bit/s in 'down Mbit/s'"),
    ],
)
def test_a_bad_cell_is_refused_without_reading_cell_by_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: str, says: str
) -> None:
    monkeypatch.setattr(table, "_slow_values", never)
    path = tmp_path / "drive.csv"
    path.write_text(f"{HEADER}{ROWS}500,{cell}\n501,2\n")
    with pytest.raises(ValueError, match="line 502") as refused:
        read_recording(path)
    assert says in str(refused.value)


def test_cells_that_may_be_missing_are_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "drive.csv"
    path.write_text(f"{HEADER}{ROWS}500,-\n501,n/a\n502,\n503,1\n")
    rate = read_recording(path).recording.down
    assert rate is not None
    assert rate.period_s == pytest.approx(501)


def test_odd_lines_are_found_in_every_piece_with_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorded_lines, "_PIECE_BYTES", 7)
    text = "header\n1,2\n# words\n\n3,x,y\n-4,5\n6,7\n8,z"
    assert list(odd_lines(text.encode(), 1)) == [
        Line(5, "3,x,y"), Line(6, "-4,5"), Line(8, "8,z"),
    ]  # fmt: skip
    assert next(odd_lines(text.encode())) == Line(1, "header")
    monkeypatch.setattr(recorded_lines, "_ODD_LINES", 2)
    assert len(list(odd_lines(text.encode()))) == 2
    assert list(odd_lines(b"1,2\n3,4\n")) == []
