import gzip
import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from muster.common.errors import ConfigError
from muster.tasks import datasets, files, texts
from muster.tasks.classification import Cifar10, FashionMnist, FromFiles, Mnist, UciHar
from muster.tasks.reading import News, Shakespeare
from muster.tasks.task import Data

FILES = list(files.CHECKSUMS["mnist"])


def idx_file(array: np.ndarray) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes(), mtime=0)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny MNIST of 20 + 5 pictures of 2×3 pixels, whose checksums are the expected ones."""
    (tmp_path / "MNIST/raw").mkdir(parents=True)
    arrays = [
        np.arange(120, dtype=np.uint8).reshape(20, 2, 3),
        np.arange(20, dtype=np.uint8) % 10,
        np.full((5, 2, 3), 255, np.uint8),
        np.arange(5, dtype=np.uint8),
    ]
    checksums = {}
    for path, array in zip(FILES, arrays, strict=True):
        body = idx_file(array)
        (tmp_path / path).write_bytes(body)
        checksums[path] = hashlib.sha256(body).hexdigest()
    monkeypatch.setitem(files.CHECKSUMS, "mnist", checksums)
    return tmp_path


def test_idx_files_are_read_as_they_were_written(directory: Path) -> None:
    found = datasets.idx("mnist", directory)
    assert found.train_x.shape == (20, 2, 3)
    assert found.train_x[3, 1].tolist() == [21, 22, 23]
    assert found.train_y.tolist() == [*range(10), *range(10)]
    assert found.train_y.dtype == np.int64
    assert found.test_x.shape == (5, 2, 3)


def test_pictures_are_kept_as_bytes_once_and_scaled_when_a_share_is_taken(directory: Path) -> None:
    first, again = datasets.idx("mnist", directory), datasets.idx("mnist", directory)
    assert first is again
    scaled = first.scaled(first.test_x[:2])
    assert first.test_x.dtype == np.uint8
    assert scaled.dtype == np.float32
    assert scaled.flags.writeable
    np.testing.assert_array_equal(scaled, np.ones((2, 2, 3), np.float32))


def test_standardised_values_have_mean_0_and_deviation_1_in_every_channel() -> None:
    random = np.random.default_rng(0)
    colours = np.array([10, 100, 250], np.uint8).reshape(3, 1, 1)
    pictures = (colours - random.integers(0, 6, (40, 3, 4, 4))).astype(np.uint8)
    y = np.zeros(40, np.int64)
    found = datasets.Dataset(pictures, y, pictures[:4], y[:4], brightest=255).standardised()
    x = found.scaled(pictures)
    np.testing.assert_allclose(x.mean((0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(x.std((0, 2, 3)), 1, atol=1e-5)
    # Test examples are mapped as training examples are.
    assert found.scaled(found.test_x).tobytes() == x[:4].tobytes()


def test_standardised_pictures_without_colours_have_one_mean(directory: Path) -> None:
    found = datasets.idx("mnist", directory).standardised()
    values = np.arange(120.0)
    expected = (values - values.mean()) / values.std()
    np.testing.assert_allclose(found.scaled(found.train_x).ravel(), expected, atol=1e-6)
    assert datasets.idx("mnist", directory).standard is None


def test_a_constant_channel_becomes_0() -> None:
    x, y = np.full((3, 2, 2), 7, np.uint8), np.zeros(3, np.int64)
    found = datasets.Dataset(x, y, x, y).standardised()
    assert not found.scaled(x).any()


def test_texts_are_not_standardised() -> None:
    x, y = np.zeros((3, 2), np.int64), np.zeros(3, np.int64)
    with pytest.raises(ConfigError, match="standardise: expected pictures or signals, found texts"):
        datasets.Dataset(x, y, x, y, vocabulary=5).standardised()


def test_an_altered_file_is_refused_with_both_checksums(directory: Path) -> None:
    path = directory / FILES[1]
    expected = files.CHECKSUMS["mnist"][FILES[1]]
    path.write_bytes(idx_file(np.zeros(20, np.uint8)))
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(ConfigError) as error:
        Mnist(data=Data(directory=str(directory))).check()
    assert f"{path}: expected SHA-256 {expected}, found {found}" in str(error.value)
    assert FILES[0] not in str(error.value)


def test_a_truncated_file_is_refused_by_the_check_and_by_opening(directory: Path) -> None:
    path = directory / FILES[0]
    path.write_bytes(path.read_bytes()[:-7])
    task = Mnist(data=Data(directory=str(directory)))
    for attempt in (task.check, task.dataset):
        with pytest.raises(ConfigError, match=r"train-images.*expected SHA-256"):
            attempt()


def test_every_missing_file_is_named_with_the_settings_that_say_where(directory: Path) -> None:
    for path in FILES[1:3]:
        (directory / path).unlink()
    with pytest.raises(ConfigError) as error:
        Mnist(data=Data(directory=str(directory))).check()
    message = str(error.value)
    assert [path in message for path in FILES] == [False, True, True, False]
    for setting in ("[task.data] directory", "--data", "MUSTER_DATA"):
        assert setting in message


def test_without_a_directory_the_message_names_the_files_and_the_settings() -> None:
    with pytest.raises(ConfigError) as error:
        FashionMnist().check()
    message = str(error.value)
    for part in (
        "no data directory is set",
        "FashionMNIST/raw/train-images-idx3-ubyte.gz",
        "FashionMNIST/raw/train-labels-idx1-ubyte.gz",
        "FashionMNIST/raw/t10k-images-idx3-ubyte.gz",
        "FashionMNIST/raw/t10k-labels-idx1-ubyte.gz",
        "[task.data] directory",
        "--data",
        "MUSTER_DATA",
    ):
        assert part in message


def test_a_directory_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="not in nowhere/at/all"):
        Mnist(data=Data(directory="nowhere/at/all")).check()


def test_the_environment_says_where_data_are_if_the_resolved_setting_does_not(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(files.DATA_VARIABLE, str(directory))
    Mnist().check()


def test_a_directory_given_by_the_flag_is_not_overridden_by_the_environment(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Reading a scenario puts what --data says into the setting, and devices inherit the variable.
    monkeypatch.setenv(files.DATA_VARIABLE, "nowhere/at/all")
    Mnist(data=Data(directory=str(directory))).check()


def test_digits_are_split_the_same_way_always() -> None:
    found = datasets.digits()
    assert (len(found.train_y), len(found.test_y)) == (1437, 360)
    assert found.train_x.shape == (1437, 8, 8)
    assert found.scaled(found.train_x).max() == 1.0
    # Every digit is in both parts, and no picture is lost.
    assert set(found.test_y.tolist()) == set(range(10))
    both = np.concatenate([found.train_x, found.test_x]).astype(np.int64)
    # Known answers: the sum of all pixels in scikit-learn's copy, and the first labels for testing.
    assert both.sum() == 561718
    assert found.test_y[:8].tolist() == [0, 1, 6, 2, 0, 9, 2, 0]


def test_reading_digits_imports_no_scikit_learn() -> None:
    program = (
        "import sys; from muster.tasks.datasets import digits; digits(); "
        "sys.exit('sklearn' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.data
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_published_files_are_whole_and_as_large_as_published(
    name: str, published: Path
) -> None:
    found = datasets.idx(name, published)
    assert found.train_x.shape == (60_000, 28, 28)
    assert found.test_x.shape == (10_000, 28, 28)
    counts = {
        "mnist": [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
        "fashion-mnist": [1000] * 10,
    }
    assert np.bincount(found.test_y).tolist() == counts[name]


@pytest.mark.data
def test_pictures_of_cifar_are_decoded_as_documented(published: Path) -> None:
    found = datasets.cifar10(published)
    checksums = [hashlib.sha256(x.tobytes()).hexdigest() for x in (found.train_x, found.test_x)]
    # Of the decoded pixels, from the page that came with the file.
    assert checksums == [
        "1473e6c9fb92bbb412e4c13757be85ad85165c7494d015d9a2273784e2b19d88",
        "3d1144ad3dcb904f4112604c5548ab9de5011535cb96761c089bb4c80cc2a2c1",
    ]
    assert np.bincount(found.train_y).tolist() == [2000] * 10
    assert np.bincount(found.test_y).tolist() == [500] * 10
    assert found.inputs == (3, 32, 32)


@pytest.mark.data
def test_every_person_of_har_has_windows_to_train_and_to_test_that_do_not_overlap(
    published: Path,
) -> None:
    found = datasets.uci_har(published)
    assert len(found.train_y) + len(found.test_y) == 10_299
    assert 0.18 < len(found.test_y) / 10_299 < 0.25
    assert found.train_user is not None
    assert np.bincount(found.train_user).min() > 200
    assert len(np.bincount(found.train_user)) == 30
    # Half a window is the half of its neighbour, bit for bit; none of those is on the other side.
    begins = {x[:, :64].tobytes() for x in found.train_x}
    ends = {x[:, 64:].tobytes() for x in found.train_x}
    assert not any(x[:, 64:].tobytes() in begins for x in found.test_x)
    assert not any(x[:, :64].tobytes() in ends for x in found.test_x)
    assert found.scaled(found.test_x)[:, 6].mean() == pytest.approx(0.81, abs=0.02)


@pytest.mark.data
def test_posts_are_words_or_tokens_without_the_header_that_names_the_group(
    published: Path,
) -> None:
    words = texts.news_words(published, 4000)
    assert words.train_x.shape == (11_314, 4000)
    assert words.test_x.shape == (7_532, 4000)
    assert np.bincount(words.train_y)[[0, 14, 19]].tolist() == [480, 593, 377]
    assert np.bincount(words.test_y)[[0, 14, 19]].tolist() == [319, 394, 251]
    dense = words.scaled(words.train_x[[0, 5, 11_313]])
    assert dense.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(dense, axis=1), 1, rtol=1e-5)
    tokens = texts.news_tokens(published, 4000, 50)
    assert tokens.inputs == (50, 4001)
    assert tokens.train_x.max() == 4000
    # The commonest word of English is the first of the vocabulary.
    assert np.bincount(tokens.train_x.ravel())[1:].argmax() == 0
    assert tokens.scaled(tokens.test_x[:2]).dtype == np.int64


@pytest.mark.data
def test_windows_of_shakespeare_are_followed_by_their_characters(published: Path) -> None:
    found = texts.shakespeare(published, 80, 10, 50, 2000)
    assert (found.labels, found.vocabulary) == (65, 65)
    assert found.train_user is not None
    assert found.train_user.max() == 98  # 99 roles with 2,000 characters, as documented
    text = (published / "tinyshakespeare/input.txt").read_text()
    alphabet = sorted(set(text))
    # Windows are from the play: their longest lines are.
    for row in (0, 30_000, len(found.train_y) - 1):
        window = "".join(alphabet[number] for number in found.train_x[row])
        line = max(window.split("\n"), key=len)
        assert line in text
    follows = (found.train_x[1:, -10] == found.train_y[:-1]) & (
        found.train_user[1:] == found.train_user[:-1]
    )
    assert follows.sum() == len(found.train_y) - 99


@pytest.mark.parametrize("task", [Cifar10, UciHar, News, Shakespeare])
def test_every_task_with_files_checks_them(task: type[FromFiles], tmp_path: Path) -> None:
    wanted = task(data=Data(directory=str(tmp_path)))
    [name] = files.CHECKSUMS[task.files]
    with pytest.raises(ConfigError, match=name):
        wanted.check()
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_bytes(b"something else")
    for attempt in (wanted.check, wanted.dataset):
        with pytest.raises(ConfigError, match=f"{name}: expected SHA-256"):
            attempt()
