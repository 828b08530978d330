"""The files of the page: index.html as the page's program serves it, and all that the report needs
inside one file.

A browser imports no module from disk, so the modules become functions in one script. They may only
use the forms of `import` and `export` that are named here; anything else is refused.
"""

import base64
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

PAGE = Path(__file__).parent / "page"
INDEX = "index.html"

_CODE = re.compile(r"`([^`]+)`")
_IMPORT = re.compile(r'^import \{ ([\w$]+(?:, [\w$]+)*) \} from "\./([\w-]+\.js)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:(?:async )?function\*?|const|class) ([\w$]+))", re.MULTILINE)
_OTHER = re.compile(r"^\s*(?:import|export)\b.*|.*\bimport\(.*", re.MULTILINE)


def templates(*folders: Path) -> Environment:
    """Templates of pages in these folders, and index.html. They escape everything, because names
    and reasons in a ledger come from peers."""
    made = Environment(
        loader=FileSystemLoader([*folders, PAGE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["coded"] = coded
    return made


def coded(text: str) -> Markup:
    """A text of the program as HTML: what stands between backticks is code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def live_index() -> str:
    """index.html for a browser that gets the other files from the page's program."""
    return templates().get_template(INDEX).render(live=True)


@dataclass(frozen=True)
class Inlined:
    """What a page needs besides its HTML.

    Attributes:
        policy: a content security policy that allows this style and script, and no request.
        icon: a data URI.
    """

    style: Markup
    script: Markup
    policy: str
    icon: str


def inlined(*styles: str) -> Inlined:
    """The style and script of a page that has its data inside the file.

    Args:
        styles: more style sheets.

    Raises:
        ValueError: a file cannot be put into a page.
    """
    script = _inside(bundle(PAGE / "report.js"))
    style = _inside("\n".join([_text(PAGE / "page.css"), *styles]))
    policy = (
        f"default-src 'none'; img-src data:; script-src {_source(script)}; "
        f"style-src {_source(style)}; base-uri 'none'; form-action 'none'"
    )
    icon = base64.b64encode((PAGE / "icon.svg").read_bytes()).decode()
    return Inlined(Markup(style), Markup(script), policy, f"data:image/svg+xml;base64,{icon}")


def json_inside(data: bytes) -> Markup:
    """JSON that may stand in a script element."""
    return Markup(data.decode().replace("<", "\\u003c"))


def bundle(entry: Path) -> str:
    """A script that does what the module `entry` does, with all modules that it imports.

    Raises:
        ValueError: a module imports or exports in another way, or modules import each other in a
            circle.
    """
    found: dict[str, str] = {}
    _add(entry, found, ())
    parts = "".join(found.values())
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def _add(path: Path, found: dict[str, str], importing: tuple[str, ...]) -> None:
    """Add a module to `found`, after all that it imports."""
    name = path.name
    if name in importing:
        raise ValueError(f"modules import each other: {' '.join([*importing, name])}")
    if name in found:
        return
    source = _text(path)
    for _, other in _IMPORT.findall(source):
        _add(path.with_name(other), found, (*importing, name))
    body = _IMPORT.sub(lambda line: f"const {{ {line[1]} }} = {_variable(line[2])};", source)
    exported = [export for _, export in _EXPORT.findall(body)]
    body = _EXPORT.sub(r"\1", body)
    if other_form := _OTHER.search(body):
        raise ValueError(f"{name}: cannot be put into a page: {other_form[0].strip()}")
    returned = f"return {{ {', '.join(exported)} }};\n" if exported else ""
    found[name] = f"const {_variable(name)} = (() => {{\n{body}{returned}}})();\n"


def _variable(name: str) -> str:
    return "module_" + name.removesuffix(".js").replace("-", "_")


def _inside(text: str) -> str:
    """`text`, which must not end the element that it stands in."""
    if found := re.search(r"</(?:script|style)|<!--", text, re.IGNORECASE):
        raise ValueError(f"{found[0]} would end an element of the page")
    return text


def _source(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
