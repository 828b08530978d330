"""The nursery: the warm parent from which device processes are forked.

Importing torch takes seconds and 200 MiB. A fork takes milliseconds and shares that memory. These
rules were found by trying:

- one thread for torch before anything runs (with its default threads every forked child hung);
- one training step before the first fork, so that no child has to import modules by itself;
- whatever else each child would make for itself, which the nursery can make once: the module, and
  the validators of what a device reads;
- no channel, server, event loop, SQLite or CUDA here, ever: they do not survive a fork;
- the nursery only forks and reaps, to the end of the run: restarted devices are forked here too;
- children die with the nursery, and the nursery with its supervisor.

The supervisor and the nursery talk over a socket pair, which is the nursery's standard input, one
JSON object a line. The supervisor sends where the process is to be (`Surroundings`) with two
descriptors, of the socket to the server and of the log; then the configuration
(`NurseryProcess`); and after the event `ready` any number of `{"start": {...}}` (`PackProcess`).
The nursery sends the events `ready`, `refused`, `failed`, `started` and `exited`. Over another pair
the server orders processes beside it, such as the evaluation: a name and a module
(`muster.server.runtime.beside`), with two sockets, one for the process to talk over, and one at
which the nursery writes the exit status.
"""

import hashlib
import json
import logging
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import muster.client.processes.early_imports  # noqa: F401
from muster.client.device.rational import require_validation
from muster.client.processes import program
from muster.client.processes.config import NurseryProcess, PackProcess, Surroundings
from muster.client.processes.trial import require_trained
from muster.client.training.local import fingerprint
from muster.client.training.together import require_layers
from muster.common.causes import outer_cause
from muster.common.errors import ConfigError, MusterError
from muster.common.files import write_atomic
from muster.common.garbage import rarely_collect
from muster.common.own_code import follow
from muster.common.platform_facts import package_versions, platform_of
from muster.common.processes import OWN_CODE, die_with_parent, use_huge_pages
from muster.common.tensors import WIRE, safetensors_header
from muster.tasks.data_digest import data_digest
from muster.tasks.hosted import HostedTask
from muster.tasks.opening import open_task, require_sound
from muster.tasks.parts import layout_of, vector_of
from muster.tasks.task import OpenTask

_BYTES = 1 << 20
_MANY = 64
"""Packs for which huge pages pay: to make them takes 0.2 to 0.4 s, and a fork and the end of the
process together take 11 ms less."""


class Nursery:
    """Forks processes of devices and reaps them."""

    def __init__(
        self,
        config: NurseryProcess,
        task: OpenTask,
        supervisor: socket.socket,
        server: socket.socket,
    ) -> None:
        self._task = task
        self._module = task.module()
        self._supervisor = supervisor
        self._server = server
        self._logs = Path(config.folder) / "logs"
        self._names: dict[int, str] = {}
        self._told: dict[int, int] = {}
        """Where the server is told the exit status: descriptors by process id."""
        self._wants_huge_pages = config.packs >= _MANY
        self._lines = b""

    def serve(self) -> None:
        """Handle the supervisor's requests until it goes away."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # A poll takes descriptors of any number; select() takes none above 1,023.
        poll = select.poll()
        poll.register(reading, select.POLLIN)
        poll.register(self._supervisor, select.POLLIN)
        poll.register(self._server, select.POLLIN)
        while True:
            ready = [file for file, _ in poll.poll()]
            if reading in ready:
                os.read(reading, 4096)
                self._reap()
            if self._server.fileno() in ready:
                self._start_beside(*socket.recv_fds(self._server, 4096, 2)[:2])
            if self._supervisor.fileno() in ready:
                received = self._supervisor.recv(1 << 16)
                if not received:
                    return
                *lines, self._lines = (self._lines + received).split(b"\n")
                for line in lines:
                    self._handle(json.loads(line))

    def send(self, event: str, **fields: Any) -> None:
        """Send an event to the supervisor."""
        self._supervisor.sendall(json.dumps({"event": event, **fields}).encode() + b"\n")

    def _handle(self, request: dict[str, Any]) -> None:
        if "start" in request:
            config = PackProcess.model_validate(request["start"])
            self._fork(config.name, lambda: program.main(config, self._task, self._module))

    def _start_beside(self, order: bytes, files: list[int]) -> None:
        """Start a process beside the server."""
        if not order:  # the supervisor is gone
            return
        connection, told = files
        wanted = json.loads(order)

        def serve() -> None:
            with socket.socket(fileno=connection) as server:
                import_module(wanted["module"]).serve_forked(self._task, server)

        self._told[self._fork(wanted["name"], serve)] = told
        os.close(connection)

    def _fork(self, name: str, run: Callable[[], None]) -> int:
        """Fork a process that does `run`; return its id."""
        if self._wants_huge_pages:
            use_huge_pages()
            self._wants_huge_pages = False
        nursery = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._run_child(name, run, nursery)
        self._names[pid] = name
        self.send("started", name=name, pid=pid)
        return pid

    def _run_child(self, name: str, run: Callable[[], None], nursery: int) -> NoReturn:
        """Do `run` in the child process; never returns into the nursery's loop."""
        status = 1
        try:
            die_with_parent(nursery)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._supervisor.close()
            self._server.close()
            for told in self._told.values():
                os.close(told)
            log_to(self._logs / f"{name}.log")
            run()
            status = 0
        except MusterError as error:
            logging.getLogger("muster.client").error("%s", error)
        except BaseException as error:
            if cause := outer_cause(error):
                logging.getLogger("muster.client").error("%s", cause)
            else:
                traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _reap(self) -> None:
        while self._names:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            name, code = self._names.pop(pid), os.waitstatus_to_exitcode(status)
            if (told := self._told.pop(pid, None)) is not None:
                with suppress(OSError):  # the server is gone
                    os.write(told, b"%d" % code)
                os.close(told)
            self.send("exited", name=name, pid=pid, status=code)


def log_to(path: Path) -> None:
    """Send this process's output and log to a file."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def prepare(
    task: OpenTask, folder: Path | None, rational: Mapping[str, int], together: bool = False
) -> dict[str, Any]:
    """Write the initial model; return its SHA-256, the number of examples, the schema and the
    layers of hidden units for the server, what the ledger records of data and software, and how
    many users have no device.

    Args:
        folder: the run folder; None: the model is not written.
        rational: the indices of the rational devices, by name.
        together: whether devices train at the same time.

    Raises:
        ConfigError: a rational device has no validation examples, the model trains nothing, or
            devices cannot train it at the same time.
    """
    require_sound(task)
    for client, index in rational.items():
        if task.examples[index]:  # else it is not called
            require_validation(task.validation(index), client)
    module = task.module()
    if together:
        require_layers(task, module)
    layout = layout_of(module)
    shapes = layout.schema
    if all(tensor.counted for tensor in shapes.tensors):
        raise ConfigError(
            "task.model: no parameter of the model is trained and travels, because all have "
            "requires_grad = False, or task.parts says that they are frozen or local; expected at "
            "least one"
        )
    body = vector_of(module).astype(WIRE).tobytes()
    if folder is not None:
        write_atomic(folder / "setup/initial.safetensors", safetensors_header(shapes), body)
    return {
        "model_sha256": hashlib.sha256(body).hexdigest(),
        "examples": task.examples,
        "schema": [
            {"name": t.name, "shape": list(t.shape), "counted": t.counted} for t in shapes.tensors
        ],
        "frozen": shapes.frozen,
        "units": [layer.model_dump() for layer in layout.layers],
        "data": {f"{len(task.examples)} devices": data_digest(task)},
        "packages": package_versions(),
        "platform": platform_of(fingerprint()),
        "left_out": task.left_out,
    }


def _told() -> tuple[socket.socket, socket.socket, NurseryProcess]:
    """Wait for what the supervisor sends first. Returns the sockets to supervisor and server, and
    the configuration."""
    supervisor = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    received, files, *_ = socket.recv_fds(supervisor, _BYTES, 2)
    if len(files) != 2:
        sys.exit(0)  # the supervisor needs no nursery
    server, log = files
    for output in (1, 2):
        os.dup2(log, output)
    os.close(log)
    while received.count(b"\n") < 2:
        if not (more := supervisor.recv(_BYTES)):
            sys.exit(0)
        received += more
    surroundings, config = received.splitlines()
    _enter(Surroundings.from_json(surroundings))
    return supervisor, socket.socket(fileno=server), NurseryProcess.from_json(config)


def _enter(surroundings: Surroundings) -> None:
    """Do what could not be done when the process was started before its run was known."""
    if surroundings.directory is not None:
        os.chdir(surroundings.directory)
    if surroundings.own_code is not None and OWN_CODE not in os.environ:
        os.environ[OWN_CODE] = surroundings.own_code
        follow()


def main() -> None:
    # A Ctrl-C at the terminal reaches the whole process group. The supervisor decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    supervisor, server, config = _told()
    import torch

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    program.warm_for_forks()
    try:
        task = open_task(config.task, config.population, config.seed)
        nursery = Nursery(config, task, supervisor, server)
        folder = Path(config.folder) if config.writes_model else None
        prepared = prepare(task, folder, config.rational, config.together)
        if config.trial is not None and config.writes_model:
            require_trained(task, config.trial, config.seed)
        if isinstance(task, HostedTask):
            task.warm()
    except MusterError as error:
        event = "refused" if isinstance(error, ConfigError) else "failed"
        supervisor.sendall(json.dumps({"event": event, "why": str(error)}).encode() + b"\n")
        supervisor.recv(1)  # wait until the supervisor goes away; it already has the reason
        sys.exit(1)
    rarely_collect()
    nursery.send("ready", **prepared)
    nursery.serve()


if __name__ == "__main__":
    main()
