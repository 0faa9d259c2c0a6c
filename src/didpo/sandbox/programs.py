"""Program kinds that start other programs or libraries: shell commands and pytest. Bodies of forked children."""

from __future__ import annotations

import os
import sys
from typing import Any

from didpo.sandbox import child

CWD_FD = 9
# The folder that the command leaves the shell in is kept for the next one. What it writes there is only believed to be
# a path inside the sandbox.
SHELL = f'trap "pwd -P >&{CWD_FD}" EXIT; eval "$1"'


def run_shell(command: str, cwd: str, stdin: int, out: int, cwd_out: int) -> None:
    os.chdir(cwd)
    for fd, target in ((stdin, 0), (out, 1), (out, 2), (cwd_out, CWD_FD)):
        os.dup2(fd, target, inheritable=True)
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    os.execv(shell, [os.path.basename(shell), "-c", SHELL, "sh", command])


def run_pytest(nodes: list[str], workdir: str, report: str, config: str, out: int, stdin: int) -> None:
    """Runs the nodes; ends the process with pytest's exit code, without the program's exit functions."""
    import pytest

    child.attach(stdin, out)
    os.dup2(out, 2)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.chdir(workdir)
    sys.path.insert(0, workdir)
    sys.setrecursionlimit(child.RECURSION_LIMIT)
    options: list[Any] = ["-q", "-p", "no:cacheprovider", "-c", config, f"--rootdir={workdir}", f"--junitxml={report}"]
    code = pytest.main([*options, "-o", "junit_family=xunit1", *nodes])
    sys.stdout.flush()
    os._exit(int(code))
