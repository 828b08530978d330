"""Environment variables that the libraries of muster's processes read, and what becomes of each.

`TABLE` decides every variable. `settle_environment` applies it to the process `muster`, and
`muster.common.processes.child_environment` to every process that another one starts. Containers
inherit nothing (`container_environment`).
"""

import os
from collections.abc import Mapping
from enum import Enum
from fnmatch import fnmatchcase
from typing import NamedTuple


class Fate(Enum):
    """What becomes of a variable; the value is its description."""

    GIVEN = "has the value that you give it"
    DEFAULT = "has a value of muster's, unless you give it one"
    FIXED = "has a value of muster's, whatever you give it"
    UNUSED = "is passed on, and muster's own connections take no notice of it"
    REMOVED = "is removed"
    OWN = "is read by muster itself"


class Variable(NamedTuple):
    """A row of the table.

    Args:
        names: of one or more variables. Where the fate is GIVEN, `*` stands for any letters.
        reader: the libraries that read them.
        value: muster's, if the fate is DEFAULT or FIXED.
    """

    names: str
    reader: str
    fate: Fate
    reason: str
    value: str = ""


TABLE = (
    Variable(
        "http_proxy https_proxy grpc_proxy all_proxy no_proxy no_grpc_proxy HTTP_PROXY HTTPS_PROXY "
        "ALL_PROXY NO_PROXY GRPC_ADDRESS_HTTP_PROXY GRPC_ADDRESS_HTTP_PROXY_ENABLED_ADDRESSES",
        "grpc, requests, urllib",
        Fate.UNUSED,
        "server, gateways and devices talk to each other directly, while your own code may need a "
        "proxy to download data; Docker's client uses one for a daemon at tcp://",
    ),
    Variable(
        "GRPC_EXPERIMENTS",
        "grpc",
        Fate.DEFAULT,
        "gRPC's older pollers answer sooner than the event engine: a round of 10 processes that "
        "echo 40 KB took 1.45 ms instead of 1.9, both ends in one run",
        "-event_engine_client,-event_engine_listener",
    ),
    Variable(
        "MALLOC_ARENA_MAX",
        "glibc",
        Fate.DEFAULT,
        "glibc has an arena for each of gRPC's threads, and arenas do not give memory back",
        "2",
    ),
    Variable(
        "GRPC_ENABLE_FORK_SUPPORT GRPC_SSL_CIPHER_SUITES GRPC_ABORT_ON_LEAKS GRPC_ASYNCIO_ENGINE",
        "grpc",
        Fate.REMOVED,
        "processes that fork do so before they use gRPC, and both ends of a connection must agree "
        "on how it is encrypted",
    ),
    Variable(
        "ONEDNN_DEFAULT_FPMATH_MODE DNNL_DEFAULT_FPMATH_MODE MKLDNN_DEFAULT_FPMATH_MODE "
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE NVIDIA_TF32_OVERRIDE",
        "oneDNN, torch, cuBLAS",
        Fate.REMOVED,
        "they let float32 be computed with 8 to 10 bits of mantissa, without a warning and without "
        "a trace in the fingerprint of the run",
    ),
    Variable(
        "CUBLAS_WORKSPACE_CONFIG",
        "cuBLAS",
        Fate.DEFAULT,
        "matrix products on a GPU add up in one order, whatever else the GPU does",
        ":4096:8",
    ),
    Variable(
        "OPENBLAS_NUM_THREADS",
        "numpy, scipy",
        Fate.DEFAULT,
        "the server computes the same bits on every number of cores, and no device "
        "has threads that wait for each other",
        "1",
    ),
    Variable(
        "OMP_NUM_THREADS MKL_NUM_THREADS GOTO_NUM_THREADS NUMEXPR_* BLIS_* "
        "OPENBLAS_DEFAULT_NUM_THREADS OPENBLAS_MAIN_FREE LOKY_* JOBLIB_* OMP_* GOMP_* KMP_* "
        "MKL_DOMAIN_NUM_THREADS MKL_DYNAMIC MKL_NUM_STRIPES MKL_MPI_PPN ACC_*",
        "torch, MKL, OpenMP, scikit-learn",
        Fate.GIVEN,
        "training and evaluation set one thread themselves; the others hold for what your own code "
        "computes",
    ),
    Variable(
        "ATEN_CPU_CAPABILITY MKL_* *ONEDNN_* *DNNL_* MKLDNN_* OPENBLAS_* NPY_* NUMPY_* NVPL_* "
        "GLIBC_TUNABLES",
        "torch, MKL, oneDNN, OpenBLAS, numpy",
        Fate.GIVEN,
        "they choose the instructions of the CPU, which all processes of a machine then share; the "
        "fingerprint has torch's choice",
    ),
    Variable(
        "TORCH* PYTORCH_* CUDA_* CUDNN_* NVIDIA_* NCCL_* FX_* KINETO_* LRU_CACHE_CAPACITY "
        "THP_MEM_ALLOC_ENABLE COMPILE_STROBELIGHT_* INTEL_LIBITTNOTIFY64",
        "torch, CUDA",
        Fate.GIVEN,
        "they choose GPUs, folders of caches, and what is logged; the graphs that devices need are "
        "not compiled",
    ),
    Variable(
        "PYTHONIOENCODING",
        "Python",
        Fate.FIXED,
        "processes write UTF-8 to each other and to logs, also where the locale has another "
        "encoding",
        "utf-8:surrogateescape",
    ),
    Variable(
        "PYTHONUNBUFFERED",
        "Python",
        Fate.FIXED,
        "what a process says is in its log at once",
        "1",
    ),
    Variable(
        "PYTHONINSPECT PYTHONWARNINGS PYTHONSTARTUP",
        "Python",
        Fate.REMOVED,
        "a process must end when its program ends, and a warning of a library must not end it",
    ),
    Variable(
        "PYTHON* __PYVENV_LAUNCHER__ _PYTHON_* VIRTUAL_ENV PYENV_* CONDA_*",
        "Python",
        Fate.GIVEN,
        "they say where Python and its packages are, and how it is debugged",
    ),
    Variable(
        "PROMETHEUS_MULTIPROC_DIR prometheus_multiproc_dir PROMETHEUS_DISABLE_CREATED_SERIES "
        "PROMETHEUS_LEGACY_NAME_VALIDATION",
        "prometheus-client",
        Fate.REMOVED,
        "the server has all metrics in one process, under the names that docs/metrics.md has",
    ),
    Variable(
        "WEB_CONCURRENCY FORWARDED_ALLOW_IPS",
        "uvicorn",
        Fate.REMOVED,
        "the live page has one process and no proxy before it",
    ),
    Variable(
        "MPLBACKEND MATPLOTLIBRC",
        "matplotlib",
        Fate.REMOVED,
        "figures are drawn without a back end, and they look the same everywhere",
    ),
    Variable(
        "MPLCONFIGDIR MPL_* FREETYPE_PROPERTIES HB_* PILLOW_* PYPARSING* PANDAS_* SCIPY_* "
        "SKLEARN_*",
        "matplotlib, pandas, scipy, scikit-learn",
        Fate.GIVEN,
        "folders of caches and fonts, and options for the developers of these libraries",
    ),
    Variable(
        "DOCKER_* COMPOSE_* BUILDKIT_* SSH_AUTH_SOCK",
        "docker",
        Fate.GIVEN,
        "they say which daemon runs the containers; the file and the project of a fleet are named "
        "in the command",
    ),
    Variable(
        "RAY_USAGE_STATS_ENABLED RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",
        "ray",
        Fate.DEFAULT,
        "a cluster that muster has to start reports nothing to Ray's makers, and leaves the "
        "variable that names the GPUs as it is",
        "0",
    ),
    Variable("RAY_*", "ray", Fate.GIVEN, "they name the cluster (docs/cluster.md)"),
    Variable(
        "MLFLOW_DISABLE_TELEMETRY",
        "mlflow",
        Fate.DEFAULT,
        "an export asks nothing of a network",
        "true",
    ),
    Variable(
        "FLWR_TELEMETRY_ENABLED",
        "flwr",
        Fate.DEFAULT,
        "a run asks nothing of a network",
        "0",
    ),
    Variable(
        "MLFLOW_* WANDB_* FLWR_* HF_* TRANSFORMERS_* TOKENIZERS_*",
        "mlflow, wandb, flwr, the code of Flower apps",
        Fate.GIVEN,
        "trackers find their servers and keys, and apps their data and models, as elsewhere; an "
        "export names its store itself",
    ),
    Variable(
        "GRPC_*",
        "grpc",
        Fate.GIVEN,
        "GRPC_VERBOSITY and GRPC_TRACE help to find faults; the others are for gRPC's developers",
    ),
    Variable(
        "*SSL* *_CA_* *_CA_BUNDLE OPENSSL_* AWS_CA_BUNDLE CLOUD* HTTPLIB2_CA_CERTS",
        "OpenSSL, requests",
        Fate.GIVEN,
        "each run has an authority of its own, which no variable names",
    ),
    Variable(
        "TMPDIR TEMP TMP SQLITE_* HOME USER LOGNAME XDG_* PWD OLDPWD",
        "Python, SQLite, libraries with caches",
        Fate.GIVEN,
        "where temporary files and caches are; a run folder has all that a run leaves",
    ),
    Variable(
        "LANG LANGUAGE LC_* LOCALDOMAIN RES_OPTIONS TZ LOCALTIME",
        "glibc, Python",
        Fate.GIVEN,
        "files are UTF-8 and times are UTC in every locale; only what you read at the terminal "
        "follows them",
    ),
    Variable(
        "TERM COLUMNS LINES COLORTERM NO_COLOR FORCE_COLOR CLICOLOR* TTY_* JUPYTER_* SHELL SHLVL _ "
        "_MUSTER_COMPLETE",
        "click, rich, the shell",
        Fate.GIVEN,
        "how the terminal is written to",
    ),
    Variable(
        "PATH LD_* GCONV_PATH MALLOC_* GFORTRAN_* UV_THREADPOOL_SIZE PROTOCOL_BUFFERS_* PYDANTIC_* "
        "TEMPORARILY_DISABLE_PROTOBUF_VERSION_CHECK OMPI_* I_MPI_* MPI_* PMI_*",
        "the dynamic linker, glibc, uvloop, protobuf, pydantic, MPI",
        Fate.GIVEN,
        "how programs and libraries are found and started",
    ),
    Variable(
        "MUSTER_DATA",
        "muster",
        Fate.OWN,
        "the folder of data files (docs/scenario.md)",
    ),
    Variable(
        "MUSTER_PARENT",
        "muster",
        Fate.OWN,
        "the process with which this one dies; set for each process that another one starts",
    ),
    Variable(
        "MUSTER_OWN_CODE",
        "muster",
        Fate.OWN,
        "which code of the user's own the programs of a run import; set when a run begins",
    ),
    Variable(
        "MUSTER_WRITE_GOLDEN",
        "muster",
        Fate.OWN,
        "lets tests write expected files (docs/testing.md)",
    ),
)

_IN_CONTAINERS = (
    "CUBLAS_WORKSPACE_CONFIG",
    "FLWR_TELEMETRY_ENABLED",
    "GRPC_EXPERIMENTS",
    "MALLOC_ARENA_MAX",
    "OPENBLAS_NUM_THREADS",
)


def variable(name: str) -> Variable | None:
    """The first row of the table that decides a variable; None: no library is known to read it."""
    rows = (row for row in TABLE if any(fnmatchcase(name, each) for each in row.names.split()))
    return next(rows, None)


def settled(given: Mapping[str, str]) -> dict[str, str]:
    """An environment as the table wants it. Variables that no library is known to read stay."""
    kept = given.keys() - _of(Fate.REMOVED)
    return {**_of(Fate.DEFAULT), **{name: given[name] for name in kept}, **_of(Fate.FIXED)}


def container_environment() -> dict[str, str]:
    """The values of muster's that programs in containers need, which inherit no variable."""
    return {name: _of(Fate.DEFAULT)[name] for name in _IN_CONTAINERS}


def settle_environment() -> None:
    """Give this process the environment that the table wants.

    What has been loaded before, such as Python itself, has already read its variables.
    """
    wanted = settled(os.environ)
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)


def _of(fate: Fate) -> dict[str, str]:
    """The variables of a fate, with muster's values."""
    return {name: row.value for row in TABLE if row.fate is fate for name in row.names.split()}
