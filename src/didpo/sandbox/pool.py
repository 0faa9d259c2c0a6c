"""Workers: the trusted ends of the warm processes. Thread-safe; a worker that fails is replaced."""

from __future__ import annotations

import json
import queue
import shutil
import signal
import site
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
from pathlib import Path
from typing import Any

from didpo.errors import UserError
from didpo.sandbox.results import Level
from didpo.sandbox.zygote import receive, send

# `-I -S`: no environment, no working folder, no start-up files. Only the modules named in `zygote` are ever loaded:
# the package itself is a stub, so that no trusted code lies in the sandbox.
BOOT = """
import sys, types
root = sys.argv.pop()
for name, path in (("didpo", root), ("didpo.sandbox", root + "/sandbox")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from didpo.sandbox.zygote import main
del sys.modules["didpo"].__path__, sys.modules["didpo.sandbox"].__path__
main()
"""


class WorkerFailed(Exception):
    """The sandbox, not the program, failed."""


def interpreter() -> str:
    """The interpreter itself, not the virtual environment's link to it."""
    return str(Path(getattr(sys, "_base_executable", None) or sys.executable).resolve())


def site_folders() -> list[str]:
    """Folders of installed packages of the running interpreter, for read-only use inside."""
    paths = sysconfig.get_paths()
    found = [paths["purelib"], paths["platlib"], *site.getsitepackages()]
    return [p for p in dict.fromkeys(found) if Path(p).is_dir()]


def interpreter_folders() -> list[str]:
    """Where the interpreter and its standard library lie, if not below /usr."""
    found = [sys.base_prefix, sys.base_exec_prefix, str(Path(interpreter()).parents[1])]
    return [p for p in dict.fromkeys(found) if not p.startswith("/usr/") and p != "/usr"]


class Worker:
    """One warm process at a given level. `shell`: it is to run commands that may start processes."""

    def __init__(self, level: Level, *, shell: bool = False) -> None:
        ours, theirs = socket.socketpair()
        self.socket, self.home = ours, ""
        if level != "namespaced":
            self.home = tempfile.mkdtemp(prefix="didpo-sandbox-")
        settings = {
            "level": level,
            "shell": shell,
            "site": site_folders(),
            "prefix": interpreter_folders(),
            "home": self.home,
        }
        package = str(Path(__file__).resolve().parents[1])
        command = [interpreter(), "-I", "-S", "-B", "-c", BOOT, str(theirs.fileno()), json.dumps(settings), package]
        self.process = subprocess.Popen(
            command, env={}, cwd="/", pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
        )
        theirs.close()
        self.facts = self.ask(None, timeout=30.0)
        if "error" in self.facts:
            self.close()
            raise WorkerFailed(self.facts["error"])
        if shell and not self.facts["processes"]:
            self.close()
            raise UserError("shell commands need sandbox level namespaced on this machine (or Linux 6.12 or later)")

    def ask(self, request: dict[str, Any] | None, timeout: float) -> Any:
        """Send a request (None: only wait) and return the answer; a worker without an answer is killed."""
        self.socket.settimeout(timeout)
        try:
            if request is not None:
                send(self.socket, request)
            answer = receive(self.socket)
        except (OSError, ValueError) as error:
            self.close()
            raise WorkerFailed(f"the sandbox process does not answer: {error}") from None
        if answer is None:
            self.close()
            raise WorkerFailed("the sandbox process has ended")
        return answer

    def close(self) -> None:
        """Closing the socket ends the process and all it started; what does not end is killed."""
        self.socket.close()
        try:
            self.process.wait(timeout=3.0)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        if self.home:
            shutil.rmtree(self.home, ignore_errors=True)


class Pool:
    """`size` workers, started when first needed; each serves one request at a time."""

    def __init__(self, level: Level, size: int, *, shell: bool = False) -> None:
        if size < 1:
            raise UserError(f"a sandbox needs at least 1 worker, not {size}")
        self.level, self.size, self.shell = level, size, shell
        self._slots: queue.LifoQueue[Worker | None] = queue.LifoQueue()
        for _ in range(size):
            self._slots.put(None)  # a worker that is not running
        self._closed = threading.Event()

    def ask(self, request: dict[str, Any], timeout: float) -> Any:
        """The answer of the next free worker. A worker that fails is replaced, and the request tried once more."""
        if self._closed.is_set():
            raise UserError("the sandbox is closed; open a new one")
        worker = self._slots.get()
        try:
            for attempt in (1, 2):
                try:
                    worker = worker or Worker(self.level, shell=self.shell)
                    return worker.ask(request, timeout)
                except WorkerFailed:
                    worker = None
                    if attempt == 2:
                        raise
        finally:
            self._slots.put(worker)

    def close(self) -> None:
        """Waits for requests in progress. Closing twice does no harm."""
        if self._closed.is_set():
            return
        self._closed.set()
        for _ in range(self.size):
            worker = self._slots.get()
            if worker is not None:
                worker.close()
