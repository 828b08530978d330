"""Recordings of links in the formats that users bring, intact and damaged in every way."""

import gzip
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from muster.common.rates.formats import stored
from muster.common.rates.reading import FORMATS, read_rate, read_recording
from muster.emulator.links.settings import LinkSettings

RECORDINGS = Path(__file__).parents[2] / "data" / "recordings"

FILES = {
    "mahimahi.down": "mahimahi",
    "nyu-mets.csv": "rate-lines",
    "nyu-measured.txt": "measured-lines",
    "oboe.txt": "chunk-log",
    "hsdpa-raw.log": "bytes-log",
    "pensieve.log": "seconds-log",
    "puffer.log": "seconds-log",
    "5g-drive.csv": "table",
    "named-columns.csv": "table",
}


@pytest.mark.parametrize("name", FILES)
def test_a_format_is_found_by_its_content(name: str, tmp_path: Path) -> None:
    found, recording = read_recording(RECORDINGS / name)
    assert found == FILES[name]
    assert set(FILES.values()) == set(FORMATS)
    assert recording.down is not None
    assert 1e5 < recording.down.mean_bps < 1e8
    packed = tmp_path / f"{name}.gz"
    content = b"# a comment\n\n" + (RECORDINGS / name).read_bytes() + b"\n\n"
    packed.write_bytes(gzip.compress(content))
    again = read_rate(packed, "down", found)
    assert again.bits.tolist() == recording.down.bits.tolist()


def test_the_rates_are_those_of_the_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("0 9\\n1.5 2\\n3 4\\n".replace("\\n", "\n"))
    rate = read_rate(log, "up")  # a line has the rate since the line before
    assert (rate.piece(0.5), rate.piece(2.0)) == ((2e6, 1.5), (4e6, 3.0))
    table = tmp_path / "table.csv"
    table.write_text("time ms,down Mbit/s,up kbit/s,rtt\n0,8,100,40\n500,2,,60\n1000,4,300,\n")
    found = read_recording(table).recording
    assert found.down is not None
    assert found.down.piece(0.6) == (2e6, 1.0)  # a row has the rate until the next
    assert read_rate(table, "up").piece(0.6) == pytest.approx((3e5, 1.0))  # without the empty row
    assert found.rtt_s == 0.05
    chunks = tmp_path / "chunks"
    chunks.write_text("0 1000\n1000 1000\n2000 3000\n3000 3000\n")
    assert read_rate(chunks, "down").piece(1.5) == (2e6, 2.0)  # the mean between two chunks
    raw = tmp_path / "raw"
    raw.write_text("1289406399 500 59.8 10.7 62500 500\n1289406400 1500 59.8 10.7 250000 1000\n")
    assert read_rate(raw, "down").piece(0.7) == (2e6, 1.5)


def test_doubled_rows_and_pauses_of_a_drive_are_told() -> None:
    notes = " ".join(read_recording(RECORDINGS / "5g-drive.csv").recording.notes)
    assert "7 rows have the instant of the row before" in notes
    assert "1 pauses without rows, up to 45 s long, are left out" in notes


TIMED = ["pensieve.log", "puffer.log", "5g-drive.csv", "named-columns.csv"]

Damage = Callable[[list[str]], list[str]]


def _with_cell(text: str) -> Damage:
    """Replaces the rate in the sixth line."""
    return lambda lines: [_cell(line, text) if at == 5 else line for at, line in enumerate(lines)]


def _cell(line: str, text: str) -> str:
    """The line with its rate, or its only number, replaced."""
    separator = next((each for each in (";", ",", "\t", " ") if each in line), None)
    cells = line.split(separator)
    place = {20: 12, 8: 0, 6: 4, 4: 1}.get(len(cells), 1)
    at = 0 if len(cells) == 1 or "bits" in cells[1] else place
    cells[at] = text
    return (separator or "").join(cells)


DAMAGES: Mapping[str, Damage] = {
    "word": _with_cell("fast"),
    "nan": _with_cell("nan"),
    "infinite": _with_cell("inf"),
    "negative": _with_cell("-3"),
    "wrong unit": _with_cell("3e15"),
    "empty": lambda lines: [],
    "binary": lambda lines: [*lines[:5], "\x00\x01\x02", *lines[5:]],
}
"""What can be wrong with a file of any format."""

OF_TIMES: Mapping[str, Damage] = {
    "unsorted": lambda lines: [*lines[:4], lines[8], *lines[5:]],
    "milliseconds since 1970": lambda lines: [
        x if not x[:1].isdigit() else _stamped(x, n) for n, x in enumerate(lines)
    ],
}
"""What can be wrong with formats that have instants."""


def _stamped(line: str, number: int) -> str:
    separator = next(each for each in (";", ",", "\t", " ") if each in line)
    return separator.join([str(1583020800000 + 1000 * number), *line.split(separator)[1:]])


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_damage_is_refused_with_its_line(name: str, damage: str, tmp_path: Path) -> None:
    _refused(name, DAMAGES[damage], tmp_path, "is empty" if damage == "empty" else "line [56]")


@pytest.mark.parametrize("damage", OF_TIMES)
@pytest.mark.parametrize(
    "name", ["pensieve.log", "puffer.log", "5g-drive.csv", "named-columns.csv"]
)
def test_wrong_instants_are_refused_with_their_line(name: str, damage: str, tmp_path: Path) -> None:
    _refused(name, OF_TIMES[damage], tmp_path, "line [1-7]: expected")


def _refused(name: str, damage: Damage, tmp_path: Path, says: str) -> None:
    lines = (RECORDINGS / name).read_text().splitlines()
    path = tmp_path / name
    path.write_text("\n".join(damage(lines)) + "\n")
    with pytest.raises(ValueError, match=says) as caught:
        read_rate(path, "down", FILES[name])
    assert str(path) in str(caught.value)
    assert "expected" in str(caught.value)
    with pytest.raises(ValueError, match="trace"):
        LinkSettings(trace=str(path), trace_format=FILES[name])


def test_doubled_instants_of_a_log_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("0 1\n1 2\n1 3\n")
    with pytest.raises(ValueError, match="line 3: expected an instant after 1 s"):
        read_rate(path, "down")


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress((RECORDINGS / "pensieve.log").read_bytes())[:-20])
    with pytest.raises(ValueError, match="damaged gzip"):
        read_rate(path, "down")


def test_a_column_without_a_unit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("seconds,down\n0,1\n1,2\n")
    with pytest.raises(ValueError, match="line 1: expected the unit of 'down' in its name"):
        read_rate(path, "down")
    path.write_text("seconds,down Mbit/s\n0,1\n1,2\n")
    with pytest.raises(ValueError, match="has rates down only"):
        LinkSettings(trace_up=str(path))


def test_the_stored_form_is_the_same_rate_and_damage_is_refused(tmp_path: Path) -> None:
    rate, path = read_rate(RECORDINGS / "mahimahi.down", "down"), tmp_path / "rate.npy"
    stored.write(path, rate)
    again = read_rate(path, "up")
    assert again.instants.tolist() == rate.instants.tolist()
    assert again.bits.tolist() == rate.bits.tolist()
    content = path.read_bytes()
    for wrong in (content[:-9], content[:20], content.replace(b"<f8", b"<i8")):
        damaged = tmp_path / "damaged.npy"
        damaged.write_bytes(wrong)
        with pytest.raises(ValueError, match=r"damaged\.npy"):
            read_rate(damaged, "down")
    np.save(path, np.array([[0.0, 2.0, 1.0], [0.0, 1.0, 2.0]]))
    with pytest.raises(ValueError, match="expected ascending instants"):
        read_rate(path, "down")


def test_a_folder_gives_each_device_one_of_its_files(tmp_path: Path) -> None:
    for number in range(5):
        for way in ("down", "up"):
            (tmp_path / f"{number}.{way}").write_text(f"0 1\n{number + 1} 2\n")
    link = LinkSettings(trace=f"{tmp_path}/*.down", trace_up=f"{tmp_path}/*.up")
    clients = [f"d-{number}" for number in range(200)]
    shapes = link.shapes_of(7, clients, range(200))
    pairs = {(str(s.trace_down), str(s.trace_up)) for s in shapes}
    assert {Path(down).name for down, _ in pairs} == {f"{n}.down" for n in range(5)}
    assert all(down.removesuffix("down") == up.removesuffix("up") for down, up in pairs)
    assert all(0 <= s.trace_start_s < int(Path(str(s.trace_up)).stem) + 1 for s in shapes)
    assert link.shapes_of(7, clients[:3], range(3)) == shapes[:3]
    assert link.shapes_of(8, clients, range(200)) != shapes
    with pytest.raises(ValueError, match=r"has 5 files, but .* has 10; expected as many"):
        LinkSettings(trace=str(tmp_path), trace_up=f"{tmp_path}/*.up")
    with pytest.raises(ValueError, match="has no files"):
        LinkSettings(trace=f"{tmp_path}/*.left")


CUT_OFF = {
    "mahimahi.down": "line 1216: 400 is less than the line before",
    "nyu-mets.csv": "line 50: expected a rate, and Mbits/sec",
    "nyu-measured.txt": "line 40: expected a rate in Mbit/s and neighbours",
    "oboe.txt": "line 24: expected milliseconds and a rate in kbit/s",
    "hsdpa-raw.log": "line 30: expected seconds since 1970 and milliseconds",
    "5g-drive.csv": "line 61: expected 20 cells, as in the header",
    "named-columns.csv": "line 21: expected 4 cells, as in the header",
    "pensieve.log": "line 40: expected seconds and a rate in Mbit/s",
    "puffer.log": "line 31: expected seconds and a rate in Mbit/s",
}
"""What is said of each file if its end is missing, so that its last line lacks cells or digits."""


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_cut_off_is_refused_with_its_last_line(name: str, tmp_path: Path) -> None:
    text = (RECORDINGS / name).read_text().rstrip()
    last = text.rindex("\n") + 1
    kept = {"mahimahi.down": 3, "pensieve.log": 3, "nyu-mets.csv": 6}.get(name, 4)
    path = tmp_path / name
    path.write_text(text[: last + kept])
    with pytest.raises(ValueError, match=re.escape(CUT_OFF[name])) as caught:
        read_recording(path, FILES[name])
    assert str(path) in str(caught.value)
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(text.encode())[:-40])
    with pytest.raises(ValueError, match=r"packed\.gz is damaged gzip .*; expected the whole file"):
        read_recording(packed, FILES[name])


DOUBLED = {
    "mahimahi.down": None,
    "nyu-mets.csv": None,
    "nyu-measured.txt": None,
    "hsdpa-raw.log": None,
    "5g-drive.csv": None,
    "named-columns.csv": None,
    "oboe.txt": "line 7: expected an instant after",
    "pensieve.log": "line 7: expected an instant after",
    "puffer.log": "line 7: expected an instant after",
}
"""What is said of each file if a line is there twice; None: it is accepted, because a line of its
format is an opportunity, a second or some milliseconds of its own, or doubled rows count once."""


@pytest.mark.parametrize("name", FILES)
def test_a_doubled_line_is_refused_where_it_can_be_none(name: str, tmp_path: Path) -> None:
    lines = (RECORDINGS / name).read_text().splitlines()
    path = tmp_path / name
    path.write_text("\n".join([*lines[:6], lines[5], *lines[6:]]) + "\n")
    if (says := DOUBLED[name]) is None:
        assert read_recording(path).format == FILES[name]
        return
    with pytest.raises(ValueError, match=says):
        read_recording(path)


def test_the_third_number_of_measured_lines_is_yes_or_no(tmp_path: Path) -> None:
    path = tmp_path / "measured.txt"
    path.write_text("9.41,4,0,-91,-19,1,0,2100\n3.2,4,5,-91,-19,1,0,-1\n")
    with pytest.raises(ValueError, match="line 2: expected 0 or 1 in the third column"):
        read_recording(path)
    path.write_text("9.50,4.00,0.00,67.00,14.00,1.00,0.00,1900.00\n3,4,1,-9,-19,1,0,-1\n")
    rate = read_rate(path, "up")
    assert (rate.piece(0.5), rate.piece(1.5)) == ((9.5e6, 1.0), (3e6, 2.0))


def test_a_folder_is_refused_by_its_first_wrong_file_and_says_how_many_there_are(
    tmp_path: Path,
) -> None:
    for name, text in {"a": "0 1\n1 2\n", "b": "0 1\n2 2\n1 3\n", "c": "0 1\n1 fast\n"}.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match="sort the lines") as caught:
        LinkSettings(trace=str(tmp_path))
    assert f"{tmp_path}/b, line 3: expected an instant after 2 s" in str(caught.value)
    assert f"take it out of {tmp_path} (2 of the 3 files there cannot be used)" in str(caught.value)


def test_decimal_commas_and_unsorted_logs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "commas.csv"
    path.write_text("seconds,down Mbit/s\n0,5,3,2\n1,5,4,1\n")
    with pytest.raises(ValueError, match="line 2: expected 2 cells, as in the header"):
        read_recording(path)
    path.write_text("1289406399 1 5 1 62500 500\n1289406398 2 5 1 62500 500\n")
    with pytest.raises(ValueError, match="line 2: expected seconds since 1970 that are not before"):
        read_recording(path)
