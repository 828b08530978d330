"""One bad cell in a large recording is found before all of it is read cell by cell."""

from pathlib import Path

import pytest

from muster.common.rates.reading import read_recording
from muster.common.recorded_lines import Line, odd_lines

HEADER = "seconds,down Mbit/s\n"
ROWS = "".join(f"{second},{second % 7}.5\n" for second in range(500))


@pytest.mark.parametrize(
    ("early", "cell", "says"),
    [
        ("1.2.3", "abc", "expected a number in 'down Mbit/s', found 'abc'"),
        ("1.2.3", "nan", "found 'nan'"),
        ("1.2.3", "-4", "expected at least 0 in 'down Mbit/s', found '-4'"),
        ("0", "99999999", "expected at most 1e+12 bit/s in 'down Mbit/s'"),
    ],
)
def test_a_bad_cell_is_refused_without_reading_cell_by_cell(
    tmp_path: Path, early: str, cell: str, says: str
) -> None:
    """Cell by cell, an earlier mistake that looks like a number would be found first."""
    path = tmp_path / "drive.csv"
    rows = ROWS.replace("7,0.5", f"7,{early}", 1)
    path.write_text(f"{HEADER}{rows}500,{cell}\n501,2\n")
    with pytest.raises(ValueError, match="line 502") as refused:
        read_recording(path)
    assert says in str(refused.value)


def test_cells_that_may_be_missing_are_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "drive.csv"
    path.write_text(f"{HEADER}{ROWS}500,-\n501,n/a\n502,\n503,1\n")
    rate = read_recording(path).recording.down
    assert rate is not None
    assert rate.period_s == pytest.approx(501)


def test_odd_lines_are_found_in_every_piece_with_their_numbers() -> None:
    text = "header\n1,2\n# words\n\n3,x,y\n-4,5\n6,7\n8,z"
    assert list(odd_lines(text.encode(), 1, piece_bytes=7)) == [
        Line(5, "3,x,y"), Line(6, "-4,5"), Line(8, "8,z"),
    ]  # fmt: skip
    assert next(odd_lines(text.encode())) == Line(1, "header")
    assert len(list(odd_lines(text.encode(), most=2))) == 2
    assert list(odd_lines(b"1,2\n3,4\n")) == []
