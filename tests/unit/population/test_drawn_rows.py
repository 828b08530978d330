"""Rows of a file that devices draw, with weights and by group."""

from collections import Counter
from pathlib import Path

import pytest

from muster.common.distributions import File, draw_for_devices


def of_file(folder: Path, text: str, column: str, name: str = "models.csv") -> File:
    (folder / name).write_text(text)
    return File(kind="file", path=str(folder / name), column=column, rows="drawn")


def drawn(file: File, clients: list[str], seed: int = 7, purpose: str = "x") -> list[float | str]:
    places = range(len(clients))
    found: list[float | str] = draw_for_devices(file, seed, clients, places, purpose).tolist()
    return found


CLIENTS = [f"a-{number:04d}" for number in range(4000)]
MODELS = "model,speed,weight\nold,10,1\nnew,40,3\nnever,99,0\n"


def test_rows_are_drawn_by_their_weights(tmp_path: Path) -> None:
    counts = Counter(drawn(of_file(tmp_path, MODELS, "model"), CLIENTS))
    assert counts.keys() == {"old", "new"}
    assert counts["new"] / 4000 == pytest.approx(0.75, abs=0.03)
    without = Counter(drawn(of_file(tmp_path, "model\nold\nnew\n", "model", "b.csv"), CLIENTS))
    assert without["new"] / 4000 == pytest.approx(0.5, abs=0.03)


def test_all_columns_of_a_device_come_from_one_row(tmp_path: Path) -> None:
    models = drawn(of_file(tmp_path, MODELS, "model"), CLIENTS[:200])
    speeds = drawn(of_file(tmp_path, MODELS, "speed"), CLIENTS[:200], purpose="y")
    assert set(zip(models, speeds, strict=True)) == {("old", 10.0), ("new", 40.0)}


def test_a_row_depends_on_the_seed_and_on_no_other_device(tmp_path: Path) -> None:
    file = of_file(tmp_path, MODELS, "model")
    assert drawn(file, CLIENTS[7:9]) == drawn(file, CLIENTS)[7:9]
    assert drawn(file, CLIENTS, seed=8) != drawn(file, CLIENTS)


def test_a_device_draws_among_the_rows_of_its_group(tmp_path: Path) -> None:
    text = "group,model\nb,y\na,x\na,z\n"
    found = drawn(of_file(tmp_path, text, "model"), [*CLIENTS[:50], "b-0000"])
    assert found[-1] == "y"
    assert set(found[:-1]) == {"x", "z"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("group,model\nb,y\n", "has no row of group 'a' to draw; expected one with a weight above"),
        ("model,weight\ny,0\n", "has no row to draw"),
        ("model,weight\ny,1\nx,-1\n", "models.csv, line 3: expected a number from 0 to 1e.12 in"),
        ("model,weight\ny,1\nx,much\n", "line 3: expected a number from 0 .* found 'much'"),
        ("model,model\ny,1\n", "has more than one column 'model'"),
    ],
)
def test_rows_that_cannot_be_drawn_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        drawn(of_file(tmp_path, text, "model"), CLIENTS[:2])


def test_rows_of_a_group_are_in_the_order_of_its_devices(tmp_path: Path) -> None:
    file = of_file(tmp_path, "group,speed\nb,5\na,1\na,2\n", "speed")
    each = file.model_copy(update={"rows": "each"})
    assert draw_for_devices(each, 7, ["a-0001", "b-0000"], [1, 2], "x").tolist() == [2.0, 5.0]
    with pytest.raises(ValueError, match="has 2 rows of group 'a', and no column 'client'"):
        draw_for_devices(each, 7, ["a-0002"], [2], "x")
