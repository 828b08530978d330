"""Data sets of the Hugging Face hub, which a command downloads once, before it starts anything."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from muster.common.errors import ConfigError, listed
from muster.tasks.sources.contract import refused

_COMMIT = re.compile(r"[0-9a-f]{40}")

_FOLDER = (
    "or save it to a folder where there is a connection, load_dataset(NAME).save_to_disk(FOLDER), "
    "and give the folder as path"
)


class HubCopy(NamedTuple):
    """A data set of the hub on this machine.

    Attributes:
        path: the folder, as `save_to_disk` of the package `datasets` wrote it.
        revision: the commit of the data set.
    """

    path: str
    revision: str


def copy_of(name: str, configuration: str | None, revision: str | None) -> HubCopy:
    """Download a data set of the hub, unless the cache of Hugging Face has it.

    The copy is a folder of its own in that cache, with the pictures in it, because `datasets` also
    keeps what users compute in the folder of a downloaded data set. Progress goes to stderr.

    Args:
        configuration, revision: see `SavedDataset`.

    Raises:
        ConfigError: it cannot be downloaded; the message says why.
    """
    import datasets  # type: ignore[import-not-found,import-untyped,unused-ignore]

    cached = Path(datasets.config.HF_DATASETS_CACHE).expanduser().resolve() / "muster"
    place = cached / name.replace("/", "___") / (configuration or "")
    if revision is not None and _COMMIT.fullmatch(revision) and (place / revision).is_dir():
        return HubCopy(str(place / revision), revision)
    commit, offline = None, ""
    try:
        commit = _commit(name, revision)
    except ConnectionError as error:
        offline = str(error)
    if commit is not None and (place / commit).is_dir():
        return HubCopy(str(place / commit), commit)
    with _explained(name, configuration, commit, offline), _without_network(commit is None):
        # One that is not in memory tells its files, in a folder whose name is the commit.
        found = datasets.load_dataset(
            name, configuration, revision=commit or revision, keep_in_memory=False
        )
    file = Path(next(iter(found.values())).cache_files[0]["filename"])
    loaded = file.parent.name
    if loaded != (commit or revision or loaded):
        raise refused(
            name,
            f"revision {commit or revision}",
            f"only revision {loaded} in the cache of Hugging Face{offline and f' ({offline})'}",
        )
    if (place / loaded).is_dir():
        return HubCopy(str(place / loaded), loaded)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=place, prefix=".") as new:
            found.save_to_disk(f"{new}/copy")
            try:
                os.rename(f"{new}/copy", place / loaded)
            except OSError:
                if not (place / loaded).is_dir():  # otherwise another command was faster
                    raise
    except OSError as error:
        raise ConfigError(f"task.source: {name} cannot be saved in {place}: {error}") from None
    return HubCopy(str(place / loaded), loaded)


@cache
def _commit(name: str, revision: str | None) -> str:
    """The commit of a data set, found once, so that all runs of a comparison have the same.

    Raises:
        ConfigError: the hub does not have it for this user, or only as a program.
        ConnectionError: the hub cannot be reached.
    """
    from huggingface_hub import HfApi, constants  # type: ignore[import-not-found,unused-ignore]
    from huggingface_hub.errors import (  # type: ignore[import-not-found,unused-ignore]
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    hub = HfApi()
    try:
        info = hub.dataset_info(name, revision=revision, timeout=30)
        if info.gated:
            hub.auth_check(name, repo_type="dataset")
    except RevisionNotFoundError:
        there = ["no such commit, branch or tag"]
        with suppress(Exception):  # see below
            refs = hub.list_repo_refs(name, repo_type="dataset")
            there = [ref.name for ref in (*refs.branches, *refs.tags)]
        raise refused(name, f"a revision {revision!r}", listed(there)) from None
    except GatedRepoError:
        raise ConfigError(
            f"task.source: {name} is gated: accept its terms at "
            f"{constants.ENDPOINT}/datasets/{name}, and log in by `hf auth login` or set HF_TOKEN"
        ) from None
    except RepositoryNotFoundError:
        raise ConfigError(
            f"task.source: {constants.ENDPOINT} has no data set {name}, or it is private; look for "
            f"a slip in hub, or log in by `hf auth login` or set HF_TOKEN"
        ) from None
    except Exception as error:  # of classes that depend on the versions of two packages
        reason = f"{constants.ENDPOINT} cannot be reached: {_first(error)}"
        raise ConnectionError(reason) from None
    program = f"{name.rpartition('/')[2]}.py"
    if any(file.rfilename == program for file in info.siblings or ()):
        raise ConfigError(
            f"task.source: {name} is a program, {program}, which the package datasets no longer "
            f'runs; take revision = "refs/convert/parquet", for which the hub has made tables of '
            f"most of them, or another data set"
        )
    return str(info.sha)


@contextmanager
def _without_network(offline: bool) -> Iterator[None]:
    """Let `datasets` look into its cache alone. It tries for half a minute otherwise."""
    import datasets

    before = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = before or offline
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before


@contextmanager
def _explained(
    name: str, configuration: str | None, commit: str | None, offline: str
) -> Iterator[None]:
    """Turn what `datasets` raises while it loads a data set into a sentence.

    Args:
        commit: None: the hub cannot be reached, because of `offline`.

    Raises:
        ConfigError: something was raised.
    """
    try:
        yield
    except Exception as error:  # of any class: it depends on the format of the files
        if commit is None:
            raise ConfigError(
                f"task.source: {name}: {offline}, and the cache of Hugging Face does not have "
                f"{'it' if configuration is None else f'its configuration {configuration!r}'}; "
                f"connect once, {_FOLDER}"
            ) from None
        there = _configurations(name, commit)
        if there and configuration not in there and (configuration is not None or len(there) > 1):
            wanted = "one of its configurations as task.source.configuration"
            raise refused(
                name, wanted, configuration or "none", f"there are: {listed(there)}"
            ) from None
        raise refused(name, "a data set that the package datasets loads", _first(error)) from None


def _configurations(name: str, commit: str) -> list[str]:
    """The names of the configurations of a data set; none if that cannot be found out."""
    import datasets

    with suppress(Exception):  # see `_explained`
        return list(datasets.get_dataset_config_names(name, revision=commit))
    return []


def _first(error: Exception) -> str:
    """The first line of what an error says, with its class."""
    said = str(error).strip().partition("\n")[0].rstrip(".")
    return f"{type(error).__name__}{said and f': {said:.200}'}"
