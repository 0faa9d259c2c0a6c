"""What runs in a forked child: the program, one case after another. Untrusted from the first line of its code on.

Standard library only. Nothing here is trusted by the grader: a program may rewrite all of it, and could then at most
forge its own answers, which it could as well return.
"""

from __future__ import annotations

import _sitebuiltins
import atexit
import builtins
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

# The interpreter starts without `site`, which would provide these to any ordinary program.
for _name in ("exit", "quit"):
    setattr(builtins, _name, _sitebuiltins.Quitter(_name, "Ctrl-D"))


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


class Baseline:
    """Interpreter state that each case starts from. Taken in the zygote: a copy made in the child would touch, and so
    duplicate, most of the memory that the two share."""

    def __init__(self) -> None:
        self.modules = dict(sys.modules)
        self.environ = dict(os.environ)
        self.builtins = dict(builtins.__dict__)


class Workspace:
    """The program's files on disk and its compiled code."""

    def __init__(self, files: Mapping[str, str], workdir: str, baseline: Baseline) -> None:
        self.files, self.workdir, self.baseline = files, workdir, baseline
        self.codes: dict[str, Any] = {}
        os.chdir(workdir)
        sys.path.insert(0, workdir)
        sys.setrecursionlimit(RECURSION_LIMIT)
        self.path = list(sys.path)

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

    def finish(self) -> bool:
        """Wait for the case's threads and run its exit functions. False: something of it goes on."""
        clean = True
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                if thread.daemon:
                    clean = False
                else:
                    thread.join()
        atexit._run_exitfuncs()
        return clean

    def restore(self) -> None:
        """Put the interpreter back for the next case."""
        for name in [n for n in sys.modules if n not in self.baseline.modules]:
            file = getattr(sys.modules[name], "__file__", None)
            if name == "__main__" or (isinstance(file, str) and file.startswith(self.workdir)):
                del sys.modules[name]
        sys.modules.update(self.baseline.modules)
        sys.path[:] = self.path
        os.chdir(self.workdir)
        if dict(os.environ) != self.baseline.environ:
            os.environ.clear()
            os.environ.update(self.baseline.environ)
        builtins.__dict__.update(self.baseline.builtins)
        sys.setrecursionlimit(RECURSION_LIMIT)


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
    for number, case in enumerate(cases):
        if number:
            space.restore()
        before = time.process_time()
        attach(case["in"], case["out"])
        record = (run_stdio if case["kind"] == "stdio" else run_call)(space, case)
        clean = space.finish()
        try:
            sys.stdout.flush()
        except (OSError, ValueError) as error:  # the file limit, or a stream that the program closed
            if record["status"] == "returned" and isinstance(error, OSError):
                record = {"status": "raised", "detail": describe(error, space.workdir)}
        record["cpu"] = round(time.process_time() - before, 6)
        write_record(results, record)
        if not clean:
            return
