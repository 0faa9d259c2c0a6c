"""What runs in a forked child: the program, one case after another. Untrusted from the first line of its code on.

Standard library only. Nothing here is trusted by the grader: a program may rewrite all of it, and could then at most
forge its own answers, which it could as well return.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import io
import json
import os
import sys
import threading
import time
import types
from collections.abc import Mapping
from typing import Any

from didpo.sandbox import wire

RECURSION_LIMIT = 50_000  # the launcher raises the stack to match


def describe(error: BaseException, workdir: str) -> str:
    """`ValueError: text (solution.py:12)`, with the last line that lies in the workspace."""
    place, tb = "", error.__traceback__
    while tb is not None:
        name = tb.tb_frame.f_code.co_filename
        if name.startswith(workdir):
            place = f" ({name[len(workdir) + 1 :]}:{tb.tb_lineno})"
        tb = tb.tb_next
    if isinstance(error, SyntaxError) and error.lineno:
        place = f" ({os.path.basename(error.filename or '?')}:{error.lineno})"
        return f"{type(error).__name__}: {error.msg}{place}"
    try:
        text = str(error)[:500]
    except BaseException:  # the program's own __str__
        text = "?"
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"


class Workspace:
    """The program's files on disk, its compiled code, and the interpreter state that each case starts from."""

    def __init__(self, files: Mapping[str, str], workdir: str) -> None:
        self.files, self.workdir = files, workdir
        self.codes: dict[str, Any] = {}
        os.chdir(workdir)
        sys.path.insert(0, workdir)
        sys.setrecursionlimit(RECURSION_LIMIT)
        self.modules = dict(sys.modules)
        self.path = list(sys.path)
        self.environ = dict(os.environ)
        self.builtins = dict(builtins.__dict__)
        self.threads = set(threading.enumerate())

    def load(self, path: str, name: str) -> types.ModuleType:
        """Run the file as a fresh module called `name`."""
        if path not in self.codes:
            if path not in self.files:
                raise FileNotFoundError(f"the workspace has no file {path}")
            source = self.files[path].encode("utf-8", "surrogatepass")
            self.codes[path] = compile(source, os.path.join(self.workdir, path), "exec", dont_inherit=True)
        module = types.ModuleType(name)
        module.__file__ = os.path.join(self.workdir, path)
        sys.modules[name] = module
        exec(self.codes[path], module.__dict__)
        return module

    def settle(self) -> bool:
        """End the case: wait for its threads, run its exit functions, put the interpreter back. False: not clean."""
        clean = True
        for thread in threading.enumerate():
            if thread not in self.threads and thread is not threading.current_thread():
                if thread.daemon:
                    clean = False
                else:
                    thread.join()
        atexit._run_exitfuncs()
        for name in [n for n in sys.modules if n not in self.modules]:
            file = getattr(sys.modules[name], "__file__", None)
            if name == "__main__" or (isinstance(file, str) and file.startswith(self.workdir)):
                del sys.modules[name]
        sys.modules.update(self.modules)
        sys.path[:] = self.path
        os.chdir(self.workdir)
        if dict(os.environ) != self.environ:
            os.environ.clear()
            os.environ.update(self.environ)
        builtins.__dict__.update(self.builtins)
        sys.setrecursionlimit(RECURSION_LIMIT)
        return clean


def module_name(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def attach(stdin: int, stdout: int) -> None:
    """Real file descriptors 0 and 1, and text streams over them."""
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    raw = io.BufferedWriter(io.FileIO(1, "w", closefd=False), 1 << 16)
    sys.stdout = io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape")


def run_stdio(space: Workspace, case: dict[str, Any]) -> dict[str, Any]:
    """Run a program as `__main__`. A non-zero exit status is a failure, as it is for a judge."""
    sys.argv = [os.path.join(space.workdir, case["path"]), *case.get("argv", ())]
    record: dict[str, Any] = {"status": "returned"}
    try:
        space.load(case["path"], "__main__")
    except SystemExit as stop:
        code = stop.code
        if code not in (None, 0):
            record = {"status": "raised", "detail": f"exit status {code if isinstance(code, int) else 1}"}
    except BaseException as error:
        record = {
            "status": "memory" if isinstance(error, MemoryError) else "raised",
            "detail": describe(error, space.workdir),
        }
        error.__traceback__ = None
    return record


def run_call(space: Workspace, case: dict[str, Any]) -> dict[str, Any]:
    """Call a function of a fresh module; the value goes back for comparison outside."""
    phase = "load"
    try:
        target: Any = space.load(case["path"], module_name(case["path"]))
        phase = "call"
        for part in case["function"].split("."):
            target = getattr(target() if isinstance(target, type) else target, part)
        value = target(*wire.decode(case["args"]))
        return {"status": "returned", "value": wire.encode(value)}
    except wire.Unsendable as refused:
        return {"status": "opaque", "detail": str(refused)}
    except SystemExit:
        return {"status": "raised", "phase": phase, "detail": "the program exited"}
    except BaseException as error:
        status = "memory" if isinstance(error, MemoryError) else "raised"
        detail = describe(error, space.workdir)
        error.__traceback__ = None
        return {"status": status, "phase": phase, "detail": detail}


def write_record(fd: int, record: dict[str, Any]) -> None:
    data = json.dumps(record).encode() + b"\n"
    while data:
        data = data[os.write(fd, data) :]


def run_cases(space: Workspace, cases: list[dict[str, Any]], results: int) -> None:
    """Run the cases in order and write one line per finished case. `stdin`, `stdout` of a case are descriptors."""
    atexit._clear()
    gc.freeze()
    for case in cases:
        before = time.process_time()
        attach(case["in"], case["out"])
        record = (run_stdio if case["kind"] == "stdio" else run_call)(space, case)
        clean = space.settle()
        try:
            sys.stdout.flush()
        except (OSError, ValueError) as error:  # the file limit, or a stream that the program closed
            if record["status"] == "returned" and isinstance(error, OSError):
                record = {"status": "raised", "detail": describe(error, space.workdir)}
        record["cpu"] = round(time.process_time() - before, 6)
        write_record(results, record)
        if not clean:
            return
