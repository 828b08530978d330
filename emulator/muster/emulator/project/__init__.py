"""The project that `muster init` makes: a scenario, a rule, its tests and a README.

`template/` has its files. It may import `muster.common` only.
"""

from pathlib import Path

from muster.common.errors import ConfigError
from muster.common.files import refusal_of

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
    templates = sorted(TEMPLATE.glob(f"*{_SUFFIX}"))
    files = [folder / template.name.removesuffix(_SUFFIX) for template in templates]
    if there := [file.name for file in files if file.exists()]:
        raise ConfigError(
            f"{folder} already has {', '.join(there)}, and muster init overwrites no file; name "
            f"another folder"
        )
    with refusal_of(f"{folder} cannot be written", "name another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        for template, file in zip(templates, files, strict=True):
            with file.open("xb") as new:
                new.write(template.read_bytes())
    return files
