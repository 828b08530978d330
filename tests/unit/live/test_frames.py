"""What travels to a page: little, and enough."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from muster.emulator.live.frames import PageReader, Publication, difference
from muster.emulator.live.page_files import PAGE
from muster.emulator.live.series import Cursor, Series


def published(**fields: Any) -> Publication:
    given_: dict[str, Any] = {"sections": {}, "columns": {}, "series": {}, "lines": []}
    return Publication(number=1, **{**given_, **fields})


def frame(reader: PageReader, **fields: Any) -> Any:
    sent = reader.frame(published(**fields))
    return None if sent is None else json.loads(sent)


def applied(old: str, change: str | dict[str, Any]) -> str:
    """What the page makes of a change of a column."""
    if isinstance(change, str):
        return change
    characters = list(old)
    for place, character in zip(change["at"], change["to"], strict=True):
        characters[place] = character
    return "".join(characters)


@given(st.text("wuo", max_size=40), st.text("wuo", max_size=40))
def test_a_difference_leads_to_the_new_column(old: str, new: str) -> None:
    assert applied(old, difference(old, new)) == new


def test_only_the_changed_places_of_a_long_column_travel() -> None:
    old = "i" * 10_000
    assert difference(old, old[:7] + "w" + old[8:]) == {"at": [7], "to": "w"}


def test_a_page_gets_what_it_lacks_and_nothing_twice() -> None:
    reader = PageReader()
    line = {"number": 4, "event": "ended", "at": 0.0, "fields": {}}
    all_of_it: dict[str, Any] = {
        "sections": {"run": b'{"round":1}', "setup": b"{}"},
        "columns": {"state": "iw"},
        "series": {"rounds": (Cursor(0, 1), ["round"], [[1]])},
        "lines": [line],
    }
    assert frame(reader, **all_of_it) == {
        "sections": {"run": {"round": 1}, "setup": {}},
        "columns": {"state": "iw"},
        "series": {"rounds": {"fields": ["round"], "keeps": 0, "rows": [[1]]}},
        "lines": [line],
    }
    assert frame(reader, **all_of_it) is None
    all_of_it["sections"] = {"run": b'{"round":2}', "setup": b"{}"}
    all_of_it["series"] = {"rounds": (Cursor(0, 2), ["round"], [[1], [2]])}
    assert frame(reader, **all_of_it) == {
        "sections": {"run": {"round": 2}},
        "series": {"rounds": {"fields": ["round"], "keeps": 1, "rows": [[2]]}},
    }


def test_a_page_gets_a_series_anew_after_it_was_thinned() -> None:
    reader = PageReader()
    frame(reader, series={"rounds": (Cursor(0, 2), ["round"], [[1], [2]])})
    sent = frame(reader, series={"rounds": (Cursor(1, 2), ["round"], [[1], [3]])})
    assert sent == {"series": {"rounds": {"fields": ["round"], "keeps": 0, "rows": [[1], [3]]}}}


def test_a_long_series_keeps_evenly_spaced_rows() -> None:
    series = Series(["round"], most=4)
    for number in range(1, 12):
        series.append((number,))
    # 1 to 4; then every second, of which 1, 3, 5, 7 fit; then every fourth.
    assert series.rows == [(1,), (5,), (9,)]
    assert series.cursor == Cursor(2, 3)


def test_the_page_asks_nobody_else_for_anything() -> None:
    own = [path for path in PAGE.iterdir() if path.suffix in (".js", ".css", ".html")]
    assert own
    for path in own:
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "//cdn" not in text, path
        assert "http:" not in text, path
        assert "https:" not in text, path
