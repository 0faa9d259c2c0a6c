"""Decides what a level contains by trying the forbidden things in it, with the same code path as any program."""

from __future__ import annotations

import functools
import json
import os
import secrets
import socket
import tempfile
from pathlib import Path
from typing import Any

from didpo.errors import UserError, unknown_name
from didpo.sandbox.pool import Worker, WorkerFailed
from didpo.sandbox.results import LEVELS, Canary, Level, SandboxReport

# Prints for each canary what happened: "" if the forbidden thing worked, or else the error.
PROGRAM = """
import ctypes, json, os, socket, sys
given = json.loads(sys.stdin.read())
libc = ctypes.CDLL(None, use_errno=True)
said = {}
def attempt(name, action):
    try:
        action()
        said[name] = ""
    except BaseException as error:
        said[name] = f"{type(error).__name__}: {error}"[:200]
def raw(function, *args):
    if getattr(libc, function)(*args) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
def connect(family, kind, address):
    with socket.socket(family, kind) as sock:
        sock.settimeout(1)
        sock.connect(address)
        if kind == socket.SOCK_DGRAM:
            sock.send(b"x")
def spawn():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
def see_environment():
    if not set(given["environment"]) & set(os.environ):
        raise LookupError("the grader's environment is not there")
def mount():
    try:
        raw("mount", b"none", b"/no/such/folder", b"tmpfs", 0, None)
    except FileNotFoundError:
        pass  # nobody refused it before the folder was looked for
attempt("read the grader's file", lambda: open(given["file"]).read())
attempt("read /etc/passwd", lambda: open("/etc/passwd").read())
attempt("write outside", lambda: open(given["target"], "w").write("x"))
attempt("see the environment", see_environment)
attempt("read the grader's process", lambda: open(f"/proc/{given['pid']}/environ", "rb").read())
attempt("connect by TCP", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", given["port"])))
attempt("send by UDP", lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 9)))
attempt("connect to an abstract socket", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, given["abstract"]))
attempt("fork", spawn)
attempt("signal the grader", lambda: os.kill(given["pid"], 0))
attempt("trace the grader", lambda: raw("ptrace", 0x4206, given["pid"], 0, 0))
attempt("mount", mount)
attempt("make a namespace", lambda: raw("unshare", 0x10000000))
print(json.dumps(said))
"""
# Names that the sandbox sets itself.
INSIDE = frozenset(
    [
        "PATH",
        "HOME",
        "TMPDIR",
        "LANG",
        "LC_CTYPE",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "PYTHONPATH",
        "PYTHONDONTWRITEBYTECODE",
    ]
)
_HINT = {
    "namespaced": "",
    "filtered": (
        "for level namespaced, allow user namespaces: sysctl kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu, "
        "or start the container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
    ),
    "process": "for level filtered, use Linux 5.13 or later with landlock enabled (lsm=landlock on the kernel line)",
}
_LIMITS = {
    "cpu_s": 5.0, "wall_s": 20.0, "memory_mb": 256, "output_bytes": 1 << 20, "file_bytes": 1 << 20,
    "disk_bytes": 1 << 22, "processes": 0, "program_s": 30.0,
}  # fmt: skip


def try_level(level: Level) -> list[Canary]:
    """What each canary found at that level. Raises `WorkerFailed` where the level cannot be entered."""
    secret = secrets.token_hex(8)
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as abstract,
        tempfile.TemporaryDirectory(prefix="didpo-canary-") as folder,
    ):
        os.chmod(folder, 0o777)
        Path(folder, "expected").write_text(secret)
        abstract.bind("\0didpo-" + secret)
        abstract.listen()
        given = {
            "environment": sorted(set(os.environ) - INSIDE),
            "file": f"{folder}/expected",
            "target": f"{folder}/written",
            "pid": os.getpid(),
            "port": tcp.getsockname()[1],
            "abstract": "\0didpo-" + secret,
        }
        said = _run(level, given)
        written = Path(folder, "written").exists()
    canaries = [Canary(name=n, contained=bool(text), detail=text or "it worked") for n, text in said.items()]
    if written:
        canaries.append(Canary(name="write outside, seen from there", contained=False, detail="the file is there"))
    return canaries


def _run(level: Level, given: dict[str, Any]) -> dict[str, str]:
    worker = Worker(level)
    try:
        case = {"kind": "stdio", "path": "canary.py", "stdin": json.dumps(given)}
        request = {"op": "grade", "files": {"canary.py": PROGRAM}, "cases": [case], "limits": _LIMITS, "mode": "fork"}
        (outcome,) = worker.ask({**request, "preload": []}, timeout=60.0)
    finally:
        worker.close()
    if outcome["status"] != "returned":
        raise WorkerFailed(f"the canaries did not finish: {outcome['status']} {outcome.get('detail', '')}")
    return {str(k): str(v) for k, v in json.loads(outcome["out"]).items()}


@functools.cache
def probe() -> SandboxReport:
    """The strongest level at which every canary was contained. Takes under a second; remembered for the process."""
    reasons: list[Canary] = []
    for level in reversed(LEVELS):
        try:
            canaries = try_level(level)
        except WorkerFailed as failure:
            reasons.append(Canary(name=f"enter level {level}", contained=False, detail=str(failure)))
            continue
        leaks = [c for c in canaries if not c.contained]
        if not leaks or level == "process":
            return SandboxReport(level=level, canaries=[*reasons, *canaries], hint=_HINT[level])
        reasons += leaks
    raise UserError(f"no program can be started in any sandbox: {reasons[-1].detail}")


def choose(require: Level, level: Level | None) -> Level:
    """The level to use: the best one, or the one asked for by name. Raises UserError if it is weaker than `require`."""
    for name in (require, *([level] if level else [])):
        if name not in LEVELS:
            raise unknown_name("sandbox level", name, LEVELS)
    best = probe()
    chosen = level or best.level
    if LEVELS.index(chosen) > LEVELS.index(best.level):
        raise UserError(f"this machine offers sandbox level {best.level}, not {chosen}; {best.hint}")
    if LEVELS.index(chosen) < LEVELS.index(require):
        hint = best.hint if level is None else f"drop the level {level}"
        raise UserError(f"sandbox level {chosen} is weaker than the required {require}; {hint}, or require {chosen}")
    return chosen
