"""The files of the page, put into one."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from muster.emulator.live.page_files import PAGE, bundle, inlined, json_inside, live_index

LIVE_ONLY = {"live.js", "operator.js"}


def test_no_module_is_left_out_and_every_module_comes_after_those_that_it_imports() -> None:
    script = bundle(PAGE / "report.js")
    placed = re.findall(r"^const module_(\w+) = ", script, re.MULTILINE)
    assert {f"{name}.js" for name in placed} == {
        path.name for path in PAGE.glob("*.js")
    } - LIVE_ONLY
    assert len(set(placed)) == len(placed)
    for use in re.finditer(r" = module_(\w+);", script):
        assert script.index(f"const module_{use[1]} = ") < use.start()
    assert not re.search(r"^\s*(import|export)\b", script, re.MULTILINE)
    assert bundle(PAGE / "report.js") == script


def test_modules_become_functions_that_return_what_they_export(tmp_path: Path) -> None:
    (tmp_path / "main.js").write_text('import { $, go } from "./a-part.js";\n$(go);\n')
    (tmp_path / "a-part.js").write_text("export const $ = print;\nexport async function go() {}\n")
    assert bundle(tmp_path / "main.js") == (
        '(() => {\n"use strict";\n'
        "const module_a_part = (() => {\n"
        "const $ = print;\nasync function go() {}\nreturn { $, go };\n})();\n"
        "const module_main = (() => {\nconst { $, go } = module_a_part;\n$(go);\n})();\n"
        "})();\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        'import * as all from "./other.js";',
        'import { a as b } from "./other.js";',
        'import "./other.js";',
        "export default 3;",
        "export let count = 0;",
        "export { count };",
        'const other = await import("./other.js");',
    ],
)
def test_other_forms_of_import_and_export_are_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / "main.js").write_text(f"{line}\n")
    with pytest.raises(ValueError, match=r"main\.js: cannot be put into a page"):
        bundle(tmp_path / "main.js")


def test_modules_that_import_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text('import { b } from "./b.js";\nexport const a = 1;\n')
    (tmp_path / "b.js").write_text('import { a } from "./a.js";\nexport const b = 1;\n')
    with pytest.raises(ValueError, match=r"import each other: a\.js b\.js a\.js"):
        bundle(tmp_path / "a.js")


def test_the_policy_allows_this_script_and_this_style_and_nothing_else() -> None:
    found = inlined("p { color: red; }")
    script, style = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (found.script, found.style)
    )
    assert found.policy == (
        f"default-src 'none'; img-src data:; script-src 'sha256-{script}'; "
        f"style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"
    )
    assert "p { color: red; }" in found.style


def test_a_style_that_would_end_its_element_is_refused() -> None:
    with pytest.raises(ValueError, match="</style would end an element"):
        inlined("p::before { content: '</style>'; }")


def test_data_cannot_end_their_element() -> None:
    hostile = "</script><!-- <script>\u2028"
    said = json_inside(json.dumps({"name": hostile}).encode())
    assert "<" not in said
    assert json.loads(said) == {"name": hostile}


def test_the_live_page_has_actions_and_nothing_of_the_report() -> None:
    index = live_index()
    assert 'data-action="stop"' in index
    assert 'src="live.js"' in index
    assert "{%" not in index
    assert "whole-run" not in index
    assert "{{" not in index
