"""Shell commands of an agent: one at a time in a copy of a workspace, or in a shell kept for a rollout."""

from __future__ import annotations

import os.path
from dataclasses import asdict
from types import TracebackType
from typing import Any

from didpo.errors import UserError
from didpo.sandbox.grade import check_paths
from didpo.sandbox.pool import Worker, WorkerFailed
from didpo.sandbox.results import CommandResult, Level, Limits, Verdict
from didpo.types import Files

_REASONS = {"memory": Verdict.MEMORY, "output": Verdict.OUTPUT_LIMIT, "disk": Verdict.OUTPUT_LIMIT}


def command_request(
    files: Files, command: str, limits: Limits, *, cwd: str = "", fresh: bool = True, last: bool = True
) -> dict[str, Any]:
    """`fresh`: start from an empty workspace; `last`: leave nothing behind."""
    check_paths(files)
    if "\0" in command:
        raise UserError("a shell command cannot hold a NUL character")
    sent = {**asdict(limits), "wall_s": limits.wall}
    request = {"op": "command", "files": dict(files), "command": command, "limits": sent, "cwd": cwd}
    return {**request, "fresh": fresh, "last": last}


def command_result(answer: dict[str, Any], limits: Limits) -> CommandResult:
    """A command that ended by itself, well or not, has an exit code; PASSED means that it is 0."""
    output, reason = answer["out"], answer["reason"]
    if answer["cut"]:
        output += f"\n[output cut off after {limits.output_bytes} bytes]\n"
    if answer["detail"]:
        verdict = Verdict.TIMEOUT
        output += f"\n[stopped: {answer['detail']}]\n"
    elif reason:
        verdict = _REASONS[reason]
        output += f"\n[stopped: {reason} limit]\n"
    else:
        verdict = Verdict.PASSED if answer["exit"] == 0 else Verdict.RUNTIME_ERROR
    return CommandResult(
        output=output, exit_code=answer["exit"], verdict=verdict, files=answer["files"], cpu_s=answer["cpu"]
    )


def failed_command(files: Files, failure: WorkerFailed) -> CommandResult:
    return CommandResult(output=str(failure), exit_code=-1, verdict=Verdict.SANDBOX_ERROR, files=dict(files))


def command_timeout(limits: Limits) -> float:
    return 2 * limits.wall + 30.0


class Shell:
    """A workspace that lives as long as a rollout. The working folder is kept between commands; processes are not:
    whatever a command leaves running is killed when it ends. Close it, or use it in a `with` block."""

    def __init__(self, level: Level, files: Files, limits: Limits) -> None:
        self.limits = limits
        self._last: dict[str, str] = dict(files)
        self._pending: dict[str, str] = dict(files)
        self._fresh, self._cwd = True, ""
        check_paths(files)
        self._worker: Worker | None = Worker(level, shell=True)

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def cwd(self) -> str:
        """The working folder as the sandbox sees it; "" before the first command."""
        return self._cwd

    @property
    def files(self) -> dict[str, str]:
        """The workspace's text files: after the last command, plus what was written since."""
        return {**self._last, **self._pending}

    def write(self, files: Files) -> None:
        """Put files into the workspace before the next command."""
        check_paths(files)
        self._pending.update(files)

    def run(self, command: str, *, limits: Limits | None = None) -> CommandResult:
        """Run one command under its own limits. After a SANDBOX_ERROR the shell is closed."""
        limits = limits or self.limits
        if self._worker is None:
            raise UserError("the shell is closed; open a new one")
        request = command_request(self._pending, command, limits, cwd=self._cwd, fresh=self._fresh, last=False)
        try:
            answer = self._worker.ask(request, command_timeout(limits))
        except WorkerFailed as failure:
            self._worker = None
            return failed_command(self.files, failure)
        self._fresh, self._pending = False, {}
        self._cwd = os.path.normpath(answer["cwd"])
        self._last = answer["files"]
        return command_result(answer, limits)

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None
