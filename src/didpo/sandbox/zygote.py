"""The warm process of one worker: locked down once, it forks a child per program and holds the deadlines.

It talks to the grader over one socket and never interprets what a program wrote. Started by `pool.Worker`; the modules
it uses (`child`, `proxy`, `wire`, `isolation`) are all that is ever loaded inside.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import select
import shutil
import signal
import socket
import struct
import sys
import time
from typing import Any

from didpo.sandbox import child, isolation, proxy

TICK = 0.02  # seconds between two looks at a running program
MAX_BATCH = 64  # cases per child: each holds up to two descriptors
_HEADER = struct.Struct(">Q")


def send(sock: socket.socket, message: Any) -> None:
    data = json.dumps(message).encode()
    sock.sendall(_HEADER.pack(len(data)) + data)


def receive(sock: socket.socket) -> Any:
    """The next message, or None when the other end has closed."""
    head = _exactly(sock, _HEADER.size)
    if head is None:
        return None
    body = _exactly(sock, _HEADER.unpack(head)[0])
    return None if body is None else json.loads(body)


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        part = sock.recv(min(size - len(data), 1 << 20))
        if not part:
            return None
        data += part
    return bytes(data)


# ------------------------------------------------------------------ files


def make_workspace(root: str, files: dict[str, str]) -> str:
    """A new folder holding the files. Paths were checked by the grader: relative, no '..'."""
    shutil.rmtree(root, onerror=_unlock)
    os.mkdir(root, 0o700)
    for path, text in files.items():
        full = os.path.join(root, path)
        if "/" in path:
            os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
    return root


def _unlock(function: Any, path: str, _: Any) -> None:
    """A folder that a program made unreadable is opened up and removed all the same."""
    try:
        os.chmod(os.path.dirname(path), 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass


def read_workspace(root: str, max_bytes: int) -> tuple[dict[str, str], list[str]]:
    """Text of all regular files (never through a link) up to `max_bytes` together; and the paths left out."""
    files: dict[str, str] = {}
    left_out: list[str] = []
    total = 0
    for folder, subfolders, names in os.walk(root, followlinks=False):
        subfolders[:] = sorted(n for n in subfolders if n not in ("__pycache__", ".git", ".pytest_cache"))
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root)
            try:
                fd = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except OSError:
                left_out.append(path)
                continue
            with os.fdopen(fd, "rb") as file:
                info = os.fstat(fd)
                if (info.st_mode & 0o170000) != 0o100000 or total + info.st_size > max_bytes:
                    left_out.append(path)
                    continue
                data = file.read(max_bytes - total)
            total += len(data)
            if b"\0" in data:
                left_out.append(path)
                continue
            files[path] = data.decode("utf-8", "surrogateescape")
    return files, left_out


def memfd(data: bytes = b"") -> int:
    fd = os.memfd_create("data", 0)
    if data:
        os.write(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
    return fd


def read_fd(fd: int, limit: int) -> bytes:
    return os.pread(fd, min(limit, os.fstat(fd).st_size), 0)


# ------------------------------------------------------------------ running children


class Run:
    """Children of one program while they run: their clocks, their output, why they were stopped."""

    def __init__(self, limits: dict[str, Any], watched: list[int], results: int | None, control: socket.socket) -> None:
        self.limits, self.watched, self.results, self.control = limits, watched, results, control
        self.pids: list[int] = []
        self.reason = ""
        self.exit_code = 0
        self.cpu = 0.0

    def wait(self, deadline: float) -> None:
        """Until the last of `pids` ends (it decides), a limit is hit, or the grader has gone; then kill all."""
        pidfd = os.pidfd_open(self.pids[-1])
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(self.control, 0)  # hang-up only
        done, cpu_mark, wall_mark = 0, 0.0, time.monotonic()
        tick = 0.0
        while not self.reason:
            events = poll.poll(int(1000 * min(TICK, 0.002 + tick)))
            tick += 0.002
            if any(fd == pidfd for fd, _ in events):
                break
            if events:
                isolation.kill_all(self.pids)
                os._exit(0)
            count = self._finished(done)
            cpu, now = self._cpu(), time.monotonic()
            if count > done:
                done, cpu_mark, wall_mark = count, cpu, now
            self.reason = self._over(cpu - cpu_mark, now - wall_mark, now > deadline)
        os.close(pidfd)
        self._end()

    def _over(self, cpu: float, wall: float, late: bool) -> str:
        if cpu > self.limits["cpu_s"]:
            return "cpu"
        if wall > self.limits["wall_s"]:
            return "wall"
        if late:
            return "program"
        if any(os.fstat(fd).st_size > self.limits["output_bytes"] for fd in self.watched):
            return "output"
        return isolation.over_budget(self.pids, self.limits)

    def _cpu(self) -> float:
        total = 0.0
        for pid in self.pids:
            try:
                total += time.clock_gettime((~pid << 3) | 2)  # CPUCLOCK_SCHED of another process
            except OSError:
                pass
        return total

    def _finished(self, done: int) -> int:
        if self.results is None or os.fstat(self.results).st_size == 0:
            return 0
        return max(done, read_fd(self.results, 1 << 26).count(b"\n"))

    def _end(self) -> None:
        decider = self.pids[-1]
        if self.reason:
            isolation.kill_all(self.pids)
        _, status, usage = os.wait4(decider, 0)
        self.cpu = usage.ru_utime + usage.ru_stime
        self.exit_code = os.waitstatus_to_exitcode(status)
        isolation.kill_all(self.pids[:-1])
        while True:
            try:
                _, _, usage = os.wait4(-1, 0)
                self.cpu += usage.ru_utime + usage.ru_stime
            except ChildProcessError:
                break
        if not self.reason and self.exit_code == -signal.SIGXCPU:
            self.reason = "cpu"


class Zygote:
    def __init__(self, control: socket.socket, home: str) -> None:
        self.control, self.home = control, home
        self.null = memfd()

    def fork(self, limits: dict[str, Any], keep: list[int], body: Any) -> int:
        """A confined child that runs `body()` and exits; every descriptor but 0-2 and `keep` is closed in it."""
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            isolation.close_others(keep)
            isolation.confine_child(limits)
            body()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(70)

    def grade(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """An outcome for every case, in order."""
        cases, limits = request["cases"], request["limits"]
        for name in request["preload"]:
            isolation.preload(name)
        deadline = time.monotonic() + limits["program_s"]
        outcomes: list[dict[str, Any] | None] = [None] * len(cases)
        alone = [[i] for i in range(len(cases))]
        queue = alone if request["mode"] == "fork" else _batches(cases)
        while queue:
            batch = queue.pop(0)
            if time.monotonic() > deadline:
                for i in batch:
                    outcomes[i] = {"status": "timeout", "detail": "not run: the program's time was used up", "cpu": 0.0}
                continue
            got = self._run_batch([cases[i] for i in batch], request["files"], limits, deadline)
            rest = []
            for place, i in enumerate(batch):
                if place >= len(got):
                    rest.append(i)
                elif place == 0 or got[place]["status"] in CLEAN or _same_load_failure(got, place):
                    outcomes[i] = got[place]
                else:
                    queue.insert(0, [i])
            if rest:
                queue.insert(0, rest)
        return [o if o is not None else {"status": "lost"} for o in outcomes]

    def _run_batch(
        self, cases: list[dict[str, Any]], files: dict[str, str], limits: dict[str, Any], deadline: float
    ) -> list[dict[str, Any]]:
        """Outcomes of the leading cases of the batch: those that finished, and the one at which it stopped."""
        workdir = make_workspace(os.path.join(self.home, "work"), files)
        results, sink, err = memfd(), memfd(), memfd()
        prepared, opened = [], [results, sink, err]
        for case in cases:
            if case["kind"] == "stdio":
                fds = {"in": memfd(case["stdin"].encode("utf-8", "surrogateescape")), "out": memfd()}
                opened += fds.values()
            else:
                fds = {"in": self.null, "out": sink}
            prepared.append({**case, **fds})
        run = Run(limits, [fd for fd in opened if fd != results], results, self.control)
        try:
            if cases[0]["kind"] == "assert":
                self._start_pair(run, prepared, files, workdir, limits, err)
            else:
                self._start_solo(run, prepared, files, workdir, limits, err)
            run.wait(deadline)
            records = read_fd(results, 1 << 26).split(b"\n")[:-1]
            return _outcomes(records[: len(cases)], prepared, run, limits, err)
        finally:
            for fd in opened:
                os.close(fd)

    def _start_solo(
        self, run: Run, cases: list[Any], files: dict[str, str], workdir: str, limits: dict[str, Any], err: int
    ) -> None:
        def body() -> None:
            os.dup2(err, 2)
            child.run_cases(child.Workspace(files, workdir), cases, run.results or 0)

        keep = [run.results or 0, err, *{fd for case in cases for fd in (case["in"], case["out"])}]
        run.pids.append(self.fork(limits, keep, body))

    def _start_pair(
        self, run: Run, cases: list[Any], files: dict[str, str], workdir: str, limits: dict[str, Any], err: int
    ) -> None:
        """The candidate's process and, last, the tests' process, which decides."""
        ours, theirs = socket.socketpair()
        sink = cases[0]["out"]

        def candidate() -> None:
            child.attach(self.null, sink)
            os.dup2(err, 2)
            proxy.serve_candidate(child.Workspace(files, workdir), theirs)

        def tests() -> None:
            child.attach(self.null, self.null)
            sys.setrecursionlimit(child.RECURSION_LIMIT)
            proxy.run_tests(cases, ours, run.results or 0)

        run.pids.append(self.fork(limits, [theirs.fileno(), self.null, sink, err], candidate))
        theirs.close()
        run.pids.append(self.fork(limits, [ours.fileno(), self.null, run.results or 0], tests))
        ours.close()

    def serve(self) -> None:
        """Answer requests until the grader closes the socket."""
        while (request := receive(self.control)) is not None:
            send(self.control, getattr(self, request["op"])(request))

    def ping(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"ready": True}


CLEAN = ("returned", "opaque", "failed")


def _batches(cases: list[dict[str, Any]]) -> list[list[int]]:
    """Neighbouring cases that can share a child."""
    batches: list[list[int]] = []
    for i, case in enumerate(cases):
        kind = case["kind"] == "assert"
        last = batches[-1] if batches else None
        if last is not None and len(last) < MAX_BATCH and (cases[last[0]]["kind"] == "assert") == kind:
            last.append(i)
        else:
            batches.append([i])
    return batches


def _same_load_failure(got: list[dict[str, Any]], place: int) -> bool:
    """A program that fails to load, in the same way as in a fresh process, need not be tried again."""
    first, this = got[0], got[place]
    return first.get("phase") == this.get("phase") == "load" and first["detail"] == this["detail"]


def _outcomes(
    records: list[bytes], cases: list[dict[str, Any]], run: Run, limits: dict[str, Any], err: int
) -> list[dict[str, Any]]:
    """Records as the program left them (still unparsed text), and what became of the case that it stopped in."""
    outcomes: list[dict[str, Any]] = []
    limit = limits["output_bytes"]
    for record, case in zip(records, cases, strict=False):
        try:
            outcome = json.loads(record)
            outcome = {**outcome, "status": str(outcome["status"]), "cpu": float(outcome["cpu"])}
        except (ValueError, TypeError, KeyError, RecursionError):
            outcome = {"status": "raised", "detail": "the program wrote over its results", "cpu": run.cpu}
        outcomes.append(_with_output(outcome, case, limit))
    if len(outcomes) < len(cases):
        case = cases[len(outcomes)]
        tail = read_fd(err, limit)[-2000:].decode("utf-8", "replace")
        outcome = _stopped(run, case, limits, tail)
        if len(outcomes) == 0 or run.reason or run.exit_code or outcome["status"] != "returned":
            outcomes.append(_with_output(outcome, case, limit))
    return outcomes


def _with_output(outcome: dict[str, Any], case: dict[str, Any], limit: int) -> dict[str, Any]:
    if os.fstat(case["out"]).st_size > limit:
        outcome = {**outcome, "status": "output"}
    if case["kind"] == "stdio":
        outcome["out"] = read_fd(case["out"], limit).decode("utf-8", "replace")
    return outcome


def _stopped(run: Run, case: dict[str, Any], limits: dict[str, Any], tail: str) -> dict[str, Any]:
    """The outcome of the case during which the child ended."""
    status, detail = "raised", ""
    if run.reason in ("cpu", "wall", "program"):
        status = "timeout"
        detail = {
            "cpu": f"over {limits['cpu_s']:g} s of CPU time",
            "wall": f"over {limits['wall_s']:g} s elapsed",
            "program": "the program's time was used up",
        }[run.reason]
    elif run.reason:
        status = run.reason
    elif run.exit_code < 0:
        detail = f"killed by {signal.Signals(-run.exit_code).name}"
    elif run.exit_code == 0 and case["kind"] == "stdio":
        status = "returned"  # os._exit(0): a program may end so
    else:
        detail = f"exit status {run.exit_code}"
    if status == "raised" and "MemoryError" in tail:
        status = "memory"
    return {"status": status, "detail": detail, "cpu": run.cpu}


def main() -> None:
    """`-c BOOT <fd> <json settings>`: see `pool.Worker`."""
    control = socket.socket(fileno=int(sys.argv[1]))
    settings = json.loads(sys.argv[2])
    try:
        facts = isolation.enter(settings, control.fileno())
    except OSError as error:
        send(control, {"error": f"{errno.errorcode.get(error.errno or 0, '?')}: {error}"})
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    send(control, facts)
    Zygote(control, facts["home"]).serve()
