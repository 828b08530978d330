"""Projects and examples, as `muster init` makes them in a folder.

`template/` has the files of a project: a scenario, a rule, its tests and a README. `examples` finds
the examples. `flower_app` writes a scenario for a Flower app.
"""

from collections.abc import Mapping
from pathlib import Path

from muster.common.errors import ConfigError
from muster.common.files import refusal_of
from muster.emulator.project.examples import find_example

TEMPLATE = Path(__file__).parent / "template"
_SUFFIX = ".template"
"""The ending of a template's name, so that no tool takes it for a part of muster."""


def make_project(folder: Path) -> list[Path]:
    """Write the files of a new project into a folder, which is made if there is none.

    Returns:
        The files, in the order of their names.

    Raises:
        ConfigError: one of the files exists, and nothing was written; or the folder cannot be
            written.
    """
    templates = TEMPLATE.glob(f"*{_SUFFIX}")
    return _copy({template.name.removesuffix(_SUFFIX): template for template in templates}, folder)


def make_example(name: str, folder: Path) -> list[Path]:
    """Write the scenario of an example, and what belongs to it, into a folder, as `make_project`.

    Returns:
        The files; the scenario is `folder` / the last part of the name, with `.toml`.

    Raises:
        ConfigError: there is no such example; or as `make_project`.
    """
    example = find_example(name)
    top = example.scenario.parent
    return _copy({str(file.relative_to(top)): file for file in example.files()}, folder)


def _copy(sources: Mapping[str, Path], folder: Path) -> list[Path]:
    """Copy files into a folder.

    Args:
        sources: the files by their names in the folder.
    """
    files = {folder / name: sources[name] for name in sorted(sources)}
    if there := [str(file.relative_to(folder)) for file in files if file.exists()]:
        raise ConfigError(
            f"{folder} already has {', '.join(there)}, and muster init overwrites no file; name "
            f"another folder"
        )
    with refusal_of(f"{folder} cannot be written", "name another folder"):
        for file, source in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("xb") as new:
                new.write(source.read_bytes())
    return list(files)
