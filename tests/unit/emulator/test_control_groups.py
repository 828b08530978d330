"""The use of a container, as the kernel's files say it, in both versions of control groups."""

from collections.abc import Callable
from pathlib import Path

import pytest

from muster.emulator.launch.docker.container import kernel_use

CONTAINER = "0e0d6ccc61324b90b9c8b268a14faa2ae99949c48ac58f5b18ce8a9ebed8e048"
MEBI = 1 << 20


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def version_1(root: Path) -> None:
    group = f"docker/{CONTAINER}"
    told = "".join(f"{number}:{name}:/{group}\n" for number, name in enumerate(CONTROLLERS, 1))
    throttled = "nr_periods 20\nnr_throttled 7\nthrottled_time 250000000\n"
    write(
        root,
        {
            "proc/12/cgroup": f"{told}0::/\n",
            f"sys/fs/cgroup/cpu/{group}/cpu.stat": throttled,
            f"sys/fs/cgroup/cpuacct/{group}/cpuacct.usage": "1500000000\n",
            f"sys/fs/cgroup/memory/{group}/memory.usage_in_bytes": f"{3 * MEBI}\n",
            f"sys/fs/cgroup/memory/{group}/memory.limit_in_bytes": f"{8 * MEBI}\n",
        },
    )


CONTROLLERS = ["cpu,cpuacct", "memory", "name=systemd"]


def version_2(root: Path, most: str = str(8 * MEBI)) -> None:
    group = f"system.slice/docker-{CONTAINER}.scope"
    counts = "usage_usec 1500000\nuser_usec 1\nnr_periods 20\nnr_throttled 7\nthrottled_usec 250000"
    write(
        root,
        {
            "proc/12/cgroup": f"0::/{group}\n",
            f"sys/fs/cgroup/{group}/cpu.stat": counts,
            f"sys/fs/cgroup/{group}/memory.current": f"{3 * MEBI}\n",
            f"sys/fs/cgroup/{group}/memory.max": f"{most}\n",
        },
    )


@pytest.mark.parametrize("files", [version_1, version_2])
def test_both_versions_say_the_same(files: Callable[[Path], None], tmp_path: Path) -> None:
    files(tmp_path)
    assert kernel_use(CONTAINER, 12, tmp_path) == (1.5, 7, 3 * MEBI, 8 * MEBI)


def test_no_limit_of_memory_is_a_very_large_one(tmp_path: Path) -> None:
    version_2(tmp_path, "max")
    use = kernel_use(CONTAINER, 12, tmp_path)
    assert use is not None
    assert use.memory_limit > 1 << 60


def test_what_is_not_this_containers_is_not_read(tmp_path: Path) -> None:
    assert kernel_use(CONTAINER, 12, tmp_path) is None  # no such process
    version_2(tmp_path)
    assert kernel_use("another", 12, tmp_path) is None
    (tmp_path / f"sys/fs/cgroup/system.slice/docker-{CONTAINER}.scope/memory.max").unlink()
    assert kernel_use(CONTAINER, 12, tmp_path) is None  # it has just ended
