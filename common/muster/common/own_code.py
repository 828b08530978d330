"""Code of the user's own: from where every process of a run imports it, and which code it is.

A scenario names it as `module:Class` or `module:function`. It is imported from the folder of the
scenario, or from the one that `modules` names; otherwise it must be installed, or in a folder of
PYTHONPATH. It never comes from the current directory, with which Python's own path may begin.

`modules_of` finds the modules of a scenario in its folder, with the SHA-256 of each. The process
that starts a run announces them (`announce`), and all programs of the run start in
`muster.common.child`, which follows the announcement (`follow`). Such a program imports a module of
the folder only if it is one of them, with the same content. Paths are relative to the folder,
because containers see it elsewhere.
"""

import ast
import hashlib
import json
import os
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import resolve_name, spec_from_file_location
from pathlib import Path
from types import ModuleType

from muster.common.causes import note_own
from muster.common.errors import ConfigError
from muster.common.processes import OWN_CODE


class OwnFinder(MetaPathFinder):
    """Imports the modules of one folder, before what the import path would find, but after the
    standard library and installed packages.

    Args:
        record: the SHA-256 of every module that may be imported, by its path relative to the
            folder; None: any may.

    Attributes:
        imports: the names of the modules that each module has imported while it was loaded.
    """

    def __init__(self, folder: str, record: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.imports: dict[str, set[str]] = {}
        self._record = record
        self._loading: list[str] = []
        self._own: dict[str, bool] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        places = [self.folder] if path is None else [p for p in path if self._has(p)]
        for place in places:
            file = _file_in(place, name.rpartition(".")[2])
            if file is not None and self._is_own(name.partition(".")[0]):
                if self._loading:
                    self.imports.setdefault(self._loading[-1], set()).add(name)
                inside = [str(file.parent)] if file.name == "__init__.py" else None
                loader = _OwnLoader(self, name, str(file))
                return spec_from_file_location(
                    name, file, loader=loader, submodule_search_locations=inside
                )
        return None

    def _is_own(self, top: str) -> bool:
        """Whether a top-level module is not installed. The folder of a scenario may contain what is
        installed: it may be the root of a clone, with muster and its environment in it."""
        if top not in self._own:
            self._own[top] = installed(top) is None
        return self._own[top]

    def _has(self, place: str) -> bool:
        """Whether a place is the folder or below it, but not in an environment that is below it:
        there a namespace package such as `google` has no module that would show it as installed."""
        return _within(place, self.folder) and not any(
            _within(place, other)
            for other in _installed_places()
            if other != self.folder
            if _within(other, self.folder)
        )

    def load(self, loader: "_OwnLoader", module: ModuleType) -> None:
        """Execute a module, and note what it imports meanwhile."""
        self._loading.append(loader.name)
        note_own(loader.name)
        try:
            SourceFileLoader.exec_module(loader, module)
        finally:
            self._loading.pop()

    def require_recorded(self, file: str, sha256: str) -> None:
        """Check that the content of a file is that with which the run began.

        Raises:
            ImportError: it is not, or the run began without this file.
        """
        relative = Path(file).relative_to(self.folder).as_posix()
        if self._record is None or self._record.get(relative) == sha256:
            return
        expected = self._record.get(relative)
        if expected is None:
            raise ImportError(
                f"{file} is not one of the modules that the run has recorded when it began; import "
                f"it by an import statement of a module that the scenario names"
            )
        raise ImportError(
            f"{file} is not the file with which the run began: expected SHA-256 {expected}, found "
            f"{sha256}; restore the file, or begin another run"
        )


class _OwnLoader(SourceFileLoader):
    """Loads a module from its source, never from bytecode, which may be of another content.

    Attributes:
        sha256: of the source, once it is loaded.
    """

    sha256 = ""

    def __init__(self, finder: OwnFinder, name: str, file: str) -> None:
        super().__init__(name, file)
        self._finder = finder

    def path_stats(self, path: str) -> Mapping[str, float]:
        raise OSError("code of the user's own has no bytecode")

    def get_data(self, path: str) -> bytes:
        data = super().get_data(path)
        if path == self.path:
            self.sha256 = hashlib.sha256(data).hexdigest()
            self._finder.require_recorded(path, self.sha256)
        return data

    def exec_module(self, module: ModuleType) -> None:
        self._finder.load(self, module)


def _within(place: str, folder: str) -> bool:
    return place == folder or place.startswith(f"{folder}{os.sep}")


def _file_in(place: str, stem: str) -> Path | None:
    """The source file of a module or package in a folder; None if there is none."""
    for file in (f"{place}/{stem}/__init__.py", f"{place}/{stem}.py"):
        if os.path.isfile(file):
            return Path(file)
    return None


# --- where modules come from ---------------------------------------------------------------------


def installed(name: str) -> str | None:
    """Where a top-level module of the standard library or of an installed package is; None if there
    is no such module."""
    if name in sys.stdlib_module_names or name == "muster":
        return "the standard library" if name != "muster" else "muster"
    spec = PathFinder.find_spec(name, _installed_places())
    return None if spec is None else spec.origin


def _installed_places() -> list[str]:
    """The import path from the standard library on, without folders of PYTHONPATH and of scenarios.
    What is before it, Python or a program has put there for the current directory or a script."""
    library = os.path.dirname(os.__file__)
    begin = sys.path.index(library) if library in sys.path else 0
    return [place for place in sys.path[begin:] if place and place not in _added(sys.path)]


def _stated_places() -> list[str]:
    """The folders of PYTHONPATH. An empty entry would stand for the current directory."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [os.path.abspath(place) for place in given if place]


def _only_here(name: str) -> str | None:
    """The file of a top-level module that this process would import from the current directory or
    from the folder of a script, and no other process would; None if there is none."""
    if installed(name) is not None or PathFinder.find_spec(name, _stated_places()) is not None:
        return None
    passing = set(map(os.path.abspath, sys.path)) - {*_installed_places(), *_added(sys.path)}
    spec = PathFinder.find_spec(name, sorted(passing))
    return None if spec is None else spec.origin


class _Folder(str):
    """A folder of a scenario on the import path."""


def _added(path: Iterable[str]) -> list[str]:
    return [place for place in path if isinstance(place, _Folder)]


def looked_in() -> str:
    """Where a module of the user's own is looked for, for people."""
    folders = [each.folder for each in sys.meta_path if isinstance(each, OwnFinder)]
    places = [*folders, *_stated_places()]
    return ", ".join([*places, "the installed packages"])


def use(folder: str, record: Mapping[str, str] | None = None) -> None:
    """Import code of the user's own from a folder from now on, and no longer from that of another
    scenario. Modules that are no longer those of the folder are loaded anew.

    Args:
        record: as in `OwnFinder`.
    """
    sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, OwnFinder)]
    sys.meta_path.insert(0, OwnFinder(folder, record))
    others = [place for place in _added(sys.path) if place != folder]
    own = [place for place in sys.path if not isinstance(place, _Folder)]
    # Programs that this process starts in other ways, such as workers of a data loader, take the
    # import path along, but not the finder.
    sys.path[:] = [*own, *([] if folder in own else [_Folder(folder)]), *others]
    for name in [each.name for each in pkgutil.iter_modules([folder])]:
        if name in sys.modules and not _is_current(name, folder):
            _forget(name)


def use_again(folder: str) -> None:
    """As `use`, but nothing is loaded anew if the folder is in use already."""
    if not any(isinstance(each, OwnFinder) and each.folder == folder for each in sys.meta_path):
        use(folder)


def _is_current(name: str, folder: str) -> bool:
    """Whether a loaded module is still what `name` stands for in a folder."""
    file = _file_in(folder, name)
    if file is None or installed(name) is not None:
        return True
    loaded = getattr(sys.modules[name], "__file__", None)
    return loaded is not None and Path(loaded) == file and not _changed_parts(name)


def _changed_parts(name: str) -> list[str]:
    """The files of a loaded module and of the parts below it that have changed since."""
    parts = [part for part in sys.modules if part == name or part.startswith(f"{name}.")]
    loaders = [getattr(sys.modules[part].__spec__, "loader", None) for part in parts]
    return [each.path for each in loaders if isinstance(each, _OwnLoader) and _changed(each)]


def _changed(loader: _OwnLoader) -> bool:
    try:
        return hashlib.sha256(Path(loader.path).read_bytes()).hexdigest() != loader.sha256
    except OSError:
        return True


def _forget(name: str) -> None:
    """Let the next import of a module load it anew."""
    for module in list(sys.modules):
        if module == name or module.startswith(f"{name}."):
            del sys.modules[module]


# --- which modules they are ----------------------------------------------------------------------


def modules_of(folder: str | None, names: Iterable[str]) -> dict[str, str]:
    """The SHA-256 of the modules of a folder that are among `names` or that these import, by path
    relative to the folder. Nothing is imported.

    Args:
        folder: None: all of them must be installed, or in a folder of PYTHONPATH.

    Raises:
        ConfigError: Python would import one of them from elsewhere, or from the current directory
            only; or one has changed since this process imported it.
    """
    found: dict[str, str] = {}
    waiting, seen = [(name, "the scenario") for name in names], set[str]()
    finder = next((each for each in sys.meta_path if isinstance(each, OwnFinder)), None)
    imports = finder.imports if finder is not None and finder.folder == folder else {}
    while waiting:
        name, by = waiting.pop()
        for module in _with_parents(name):
            if module in seen:
                continue
            seen.add(module)
            file = _file_in(folder, module.replace(".", "/")) if folder is not None else None
            if "." not in module:
                _require_reachable(module, by, folder, file)
            if file is None or folder is None or installed(module.partition(".")[0]) is not None:
                continue
            source = _read(file)
            relative = file.relative_to(folder).as_posix()
            found[relative] = hashlib.sha256(source).hexdigest()
            _require_unchanged(module, file, found[relative])
            more = {*_imported(source, module, file), *imports.get(module, ())}
            waiting += [(each, relative) for each in sorted(more)]
    return dict(sorted(found.items()))


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _require_reachable(name: str, by: str, folder: str | None, file: Path | None) -> None:
    """Check that every process imports a top-level module from the same place."""
    if file is not None and (other := installed(name)) is not None:
        raise ConfigError(
            f"modules: {by} names the module {name!r}, expected one of this name, found two: "
            f"{file}, and that of {other}, which Python would import; rename {file.name}"
        )
    if file is None and (stray := _only_here(name)) is not None:
        raise ConfigError(
            f"modules: {by} names the module {name!r}, expected it in "
            f"{folder or 'the folder of the scenario'}, in a folder of PYTHONPATH or installed, "
            f"found only {stray}, from which the processes of a run import nothing; move it, or "
            f"name its folder as `modules`"
        )


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"modules: {file} cannot be read: {error.strerror}") from None


def _require_unchanged(name: str, file: Path, sha256: str) -> None:
    loader = getattr(getattr(sys.modules.get(name), "__spec__", None), "loader", None)
    if isinstance(loader, _OwnLoader) and loader.path == str(file) and loader.sha256 != sha256:
        raise ConfigError(
            f"modules: {file} has changed since this process imported it; read the scenario again"
        )


def _imported(source: bytes, module: str, file: Path) -> Iterator[str]:
    """The names of all modules that the import statements of a source may import."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # the import says so
        return
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            try:
                base = resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:  # it leads out of the package
                continue
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


# --- announcing them to the programs of a run ----------------------------------------------------


def announce(folder: str | None, modules: Mapping[str, str]) -> None:
    """Tell all programs that this process starts from now on which code they import, and that they
    import none from the current directory.

    Args:
        folder: None: the run has no code of the user's own.
    """
    if (places := _stated_places()) or "PYTHONPATH" in os.environ:
        os.environ["PYTHONPATH"] = os.pathsep.join(places)
    if folder is None:
        os.environ.pop(OWN_CODE, None)
    else:
        os.environ[OWN_CODE] = announcement(folder, modules)


def announcement(folder: str, modules: Mapping[str, str]) -> str:
    """The value of the environment variable."""
    return json.dumps({"folder": folder, "modules": dict(modules)})


def announced() -> tuple[str, dict[str, str]] | None:
    """The folder and the modules that were announced; None if nothing was."""
    text = os.environ.get(OWN_CODE)
    if text is None:
        return None
    values = json.loads(text)
    return values["folder"], values["modules"]


def follow() -> None:
    """Import code of the user's own as the process that began the run has announced."""
    if (own := announced()) is not None:
        use(*own)
