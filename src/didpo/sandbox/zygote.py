"""The warm process of one worker: locked down once, it forks a child per program and holds the deadlines.

It talks to the grader over one socket and never acts on what a program wrote. Started by `pool.Worker`; the modules
that it imports from this folder are all of the package that is ever loaded inside.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import struct
import sys
import time
from typing import Any

from didpo.sandbox import child, files, isolation, programs, proxy, running

MAX_BATCH = 64  # cases per child: each holds up to two descriptors
CLEAN = ("returned", "opaque", "failed")
RECORDED = (*CLEAN, "raised", "memory")
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


class Zygote:
    def __init__(self, control: socket.socket, home: str) -> None:
        self.control, self.home = control, home
        self.null = files.memfd()
        self._settle()

    def _settle(self) -> None:
        """Take the state that children start from, and keep the collector away from the memory they share."""
        self.baseline = child.Baseline()
        gc.collect()
        gc.freeze()

    def serve(self) -> None:
        """Answer requests until the grader closes the socket."""
        while (request := receive(self.control)) is not None:
            send(self.control, getattr(self, f"do_{request['op']}")(request))
        files.clear(self.home)

    # -------------------------------------------------------------- grading

    def do_grade(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """An outcome for every case, in order."""
        cases, limits = request["cases"], request["limits"]
        for name in request["preload"]:
            if name not in sys.modules:
                isolation.preload(name)
                self._settle()
        deadline = time.monotonic() + limits["program_s"]
        outcomes: list[dict[str, Any]] = [{"status": "lost"}] * len(cases)
        queue = [[i] for i in range(len(cases))] if request["mode"] == "fork" else _batches(cases)
        while queue:
            batch = queue.pop(0)
            if time.monotonic() > deadline:
                for i in batch:
                    outcomes[i] = {"status": "timeout", "detail": "not run: the program's time was used up"}
                continue
            got = self._run_batch([cases[i] for i in batch], request["files"], limits, deadline)
            again = []
            for i, outcome in zip(batch, got, strict=False):
                if i == batch[0] or outcome["status"] in CLEAN or _same_load_failure(got[0], outcome):
                    outcomes[i] = outcome
                else:
                    again.append([i])
            queue[:0] = again + ([batch[len(got) :]] if len(got) < len(batch) else [])
        files.clear(self.home)
        return outcomes

    def _run_batch(
        self, cases: list[dict[str, Any]], sources: dict[str, str], limits: dict[str, Any], deadline: float
    ) -> list[dict[str, Any]]:
        """Outcomes of the leading cases of the batch: those that finished, and the one at which it stopped."""
        if cases[0]["kind"] == "pytest":
            return self._run_pytest(cases, limits, deadline)
        workdir = files.make_workspace(self.home, sources)
        results, sink, err = files.memfd(), files.memfd(), files.memfd()
        prepared, opened = [], [results, sink, err]
        for case in cases:
            fds = {"in": self.null, "out": sink}
            if case["kind"] == "stdio":
                fds = {"in": files.memfd(files.to_bytes(case["stdin"])), "out": files.memfd()}
                opened += fds.values()
            prepared.append({**case, **fds})
        os.lseek(self.null, 0, os.SEEK_SET)
        run = running.Run(limits, opened[1:], results, self.control)
        try:
            space = (sources, workdir)
            start = self._start_pair if cases[0]["kind"] == "assert" else self._start_solo
            start(run, prepared, space, results, err)
            run.wait(deadline)
            records = files.read_fd(results, running.RESULT_BYTES).split(b"\n")[:-1]
            return _outcomes(records[: len(cases)], prepared, run, err)
        finally:
            for fd in opened:
                os.close(fd)

    def _start_solo(
        self, run: running.Run, cases: list[Any], space: tuple[dict[str, str], str], results: int, err: int
    ) -> None:
        def body() -> None:
            os.dup2(err, 2)
            child.run_cases(child.Workspace(*space, self.baseline), cases, results)

        keep = [results, err, *(fd for case in cases for fd in (case["in"], case["out"]))]
        run.pids.append(running.fork(run.limits, keep, body))

    def _start_pair(
        self, run: running.Run, cases: list[Any], space: tuple[dict[str, str], str], results: int, err: int
    ) -> None:
        """The candidate's process and, last, the tests' process, which decides."""
        ours, theirs = socket.socketpair()
        sink = cases[0]["out"]

        def candidate() -> None:
            child.attach(self.null, sink)
            os.dup2(err, 2)
            proxy.serve_candidate(child.Workspace(*space, self.baseline), theirs)

        def tests() -> None:
            child.attach(self.null, sink)
            sys.setrecursionlimit(child.RECURSION_LIMIT)
            proxy.run_tests(cases, ours, results)

        run.pids.append(running.fork(run.limits, [theirs.fileno(), self.null, sink, err], candidate))
        theirs.close()
        run.pids.append(running.fork(run.limits, [ours.fileno(), self.null, sink, results], tests))
        ours.close()

    def _run_pytest(self, cases: list[dict[str, Any]], limits: dict[str, Any], deadline: float) -> list[dict[str, Any]]:
        """One run for all cases, whose workspaces are the same. A run that is more than failed tests (a node that is
        not there, say) counts for the first case only."""
        workdir = files.make_workspace(self.home, cases[0]["files"])
        report, out = os.path.join(self.home, "report.xml"), files.memfd()
        run = running.Run(limits, [out], None, self.control)
        nodes = [case["node"] for case in cases]
        config = (
            os.path.join(workdir, cases[0]["config"]) if cases[0]["config"] else os.path.join(self.home, "none.ini")
        )
        files.write(self.home, {"none.ini": "[pytest]\n"})

        def body() -> None:
            programs.run_pytest(nodes, workdir, report, config, out, self.null)

        run.pids.append(running.fork(limits, [out, self.null], body))
        run.wait(deadline)
        text = files.read_fd(out, limits["output_bytes"])[-2000:].decode("utf-8", "replace")
        os.close(out)
        if run.reason or run.exit_code not in (0, 1):
            return [_stopped(run, cases[0], text)]
        xml = (files.read_regular(report, running.RESULT_BYTES) or b"").decode("utf-8", "replace")
        return [{"status": "returned", "xml": xml, "exit": run.exit_code, "cpu": run.cpu / len(cases)} for _ in cases]

    # -------------------------------------------------------------- shell commands

    def do_command(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run one command. With "fresh", in a new workspace; otherwise in the one there is, files written first."""
        limits, workdir = request["limits"], os.path.join(self.home, "work")
        if request["fresh"]:
            files.make_workspace(self.home, request["files"])
        else:
            files.write(workdir, request["files"])
        cwd = os.path.realpath(os.path.join(workdir, request["cwd"]))
        if not os.path.isdir(cwd):
            cwd = workdir
        out, cwd_out = files.memfd(), files.memfd()
        run = running.Run(limits, [out], None, self.control)

        def body() -> None:
            programs.run_shell(request["command"], cwd, self.null, out, cwd_out)

        run.pids.append(running.fork(limits, [out, cwd_out, self.null], body))
        run.wait(time.monotonic() + limits["program_s"])
        limit = limits["output_bytes"]
        answer = {
            "out": files.read_fd(out, limit).decode("utf-8", "replace"),
            "cut": os.fstat(out).st_size > limit,
            "exit": run.exit_code,
            "reason": run.reason,
            "detail": run.timeout_detail(),
            "cwd": files.read_fd(cwd_out, 4096).decode("utf-8", "replace").strip() or cwd,
            "cpu": run.cpu,
        }
        os.close(out)
        os.close(cwd_out)
        answer["files"], answer["left_out"] = files.read_workspace(workdir, limits["disk_bytes"])
        if request["last"]:
            files.clear(self.home)
        return answer


def _batches(cases: list[dict[str, Any]]) -> list[list[int]]:
    """Neighbouring cases that can share a child."""
    batches: list[list[int]] = []
    for i, case in enumerate(cases):
        if batches and len(batches[-1]) < MAX_BATCH and _share(cases[batches[-1][0]], case):
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def _share(first: dict[str, Any], case: dict[str, Any]) -> bool:
    if first["kind"] in ("assert", "pytest"):
        return bool(first["kind"] == case["kind"] and first.get("files") == case.get("files"))
    return case["kind"] in ("call", "stdio")


def _same_load_failure(first: dict[str, Any], outcome: dict[str, Any]) -> bool:
    """A program that fails to load, in the same way as in a fresh process, need not be tried again."""
    return first.get("phase") == outcome.get("phase") == "load" and first["detail"] == outcome["detail"]


def _outcomes(records: list[bytes], cases: list[dict[str, Any]], run: running.Run, err: int) -> list[dict[str, Any]]:
    """The records of finished cases, and what became of the case that the child stopped in."""
    limit = run.limits["output_bytes"]
    outcomes = [_with_output(_parse(line, run.cpu), case, limit) for line, case in zip(records, cases, strict=False)]
    if len(outcomes) == len(cases):
        return outcomes
    case = cases[len(outcomes)]
    tail = files.read_fd(err, limit)[-2000:].decode("utf-8", "replace")
    outcome = _stopped(run, case, tail)
    left_on_its_own = bool(outcomes) and run.exit_code == 0 and not run.reason and os.fstat(case["out"]).st_size == 0
    if not left_on_its_own:  # otherwise the child ended between two cases, as after a stray thread
        outcomes.append(_with_output(outcome, case, limit))
    return outcomes


def _parse(line: bytes, cpu: float) -> dict[str, Any]:
    """A record is the program's word: it is read as JSON and nothing more."""
    try:
        record = json.loads(line)
        if record["status"] in RECORDED:
            return {**record, "cpu": float(record["cpu"])}
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    return {"status": "raised", "detail": "the program wrote over its results", "cpu": cpu}


def _with_output(outcome: dict[str, Any], case: dict[str, Any], limit: int) -> dict[str, Any]:
    if os.fstat(case["out"]).st_size > limit:
        outcome = {**outcome, "status": "output"}
    if case["kind"] == "stdio":
        outcome["out"] = files.read_fd(case["out"], limit).decode("utf-8", "replace")
    return outcome


def _stopped(run: running.Run, case: dict[str, Any], tail: str) -> dict[str, Any]:
    """The outcome of the case during which the child ended."""
    status, detail = "raised", run.timeout_detail()
    if detail:
        status = "timeout"
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
    isolation.raise_stack()
    control = socket.socket(fileno=int(sys.argv[1]))
    try:
        facts = isolation.enter(json.loads(sys.argv[2]), control.fileno())
    except OSError as error:
        send(control, {"error": str(error)})
        return
    send(control, facts)
    Zygote(control, facts["home"]).serve()
