"""Files of data sets: their paths, and checks that they are the published files."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from muster.common.errors import ConfigError

DATA_VARIABLE = "MUSTER_DATA"
"""The environment variable that names the data directory."""

# For each data set: paths below the data directory, and SHA-256. The files of MNIST, Fashion-MNIST
# and Tiny Shakespeare are those that the authors published; the others were packed for muster.
CHECKSUMS = {
    "mnist": {
        "MNIST/raw/train-images-idx3-ubyte.gz": (
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
        ),
        "MNIST/raw/train-labels-idx1-ubyte.gz": (
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
        ),
        "MNIST/raw/t10k-images-idx3-ubyte.gz": (
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
        ),
        "MNIST/raw/t10k-labels-idx1-ubyte.gz": (
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
        ),
    },
    "fashion-mnist": {
        "FashionMNIST/raw/train-images-idx3-ubyte.gz": (
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"
        ),
        "FashionMNIST/raw/train-labels-idx1-ubyte.gz": (
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"
        ),
        "FashionMNIST/raw/t10k-images-idx3-ubyte.gz": (
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"
        ),
        "FashionMNIST/raw/t10k-labels-idx1-ubyte.gz": (
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"
        ),
    },
    "cifar10": {
        "cifar-10/cifar10-subset-20k-5k.npz": (
            "50690156b39b42e143f51b5e4a3fc6922895c920dae054c89be87e7530edbe31"
        ),
    },
    "uci-har": {
        "uci-har/uci-har-inertial.npz": (
            "47d90c02d2ad42f12049cd71571965ae33e50262862ba1bc2e40780f87d118c2"
        ),
    },
    "20news": {
        "20news/20news-bydate.tar.xz": (
            "dbafbd9ae7b8341b361169527fe2292829fca1d432ca449317b39042f12a53d3"
        ),
    },
    "shakespeare": {
        "tinyshakespeare/input.txt": (
            "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
        ),
    },
}


def verified(name: str, directory: Path) -> list[bytes]:
    """Return the files of a data set after comparing their checksums.

    Raises:
        ConfigError: files are missing or were altered; the message names all of them.
    """
    paths = {directory / path: expected for path, expected in CHECKSUMS[name].items()}
    if missing := [path for path in paths if not path.is_file()]:
        raise ConfigError(_absent(name, missing, f"these are not in {directory}"))
    bodies = [path.read_bytes() for path in paths]
    found = [hashlib.sha256(body).hexdigest() for body in bodies]
    wrong = [
        f"  {path}: expected SHA-256 {expected}, found {actual}"
        for (path, expected), actual in zip(paths.items(), found, strict=True)
        if actual != expected
    ]
    if wrong:
        title = f"task.data.directory: {name} has incomplete or altered files; fetch them again"
        raise ConfigError("\n".join([title, *wrong]))
    return bodies


def directory_of(name: str, setting: str | None) -> Path:
    """Return where the files of the data set `name` should be.

    Args:
        setting: `[task.data] directory` as resolved when the scenario was read. --data and the
            environment took precedence then, so the setting takes precedence here.

    Raises:
        ConfigError: neither the setting nor the environment has a directory.
    """
    if directory := setting or os.environ.get(DATA_VARIABLE):
        return Path(directory)
    raise ConfigError(_absent(name, CHECKSUMS[name], "no data directory is set"))


def _absent(name: str, paths: Iterable[Path | str], why: str) -> str:
    title = f"task.data.directory: {name} needs files, and {why}:"
    advice = (
        "give the folder that holds them by [task.data] directory in the scenario, by --data, or "
        f"by the environment variable {DATA_VARIABLE}"
    )
    return "\n".join([title, *(f"  {path}" for path in paths), advice])
