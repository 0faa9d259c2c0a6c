"""The hostile programs run for real at each level: contained, nothing left alive, other programs unaffected."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from didpo.sandbox import Limits, Sandbox, Verdict, open_sandbox
from didpo.types import CallTest, StdioTest

FOLDER = Path(__file__).parent / "hostile"
LIMITS = Limits(cpu_s=1.5, wall_s=3.0, memory_mb=256, output_bytes=1 << 20, disk_bytes=24 << 20)
SHELL = Limits(cpu_s=2.0, wall_s=2.5, memory_mb=300, output_bytes=64 << 10, disk_bytes=24 << 20, processes=24)
GOOD = {"g.py": "print(int(input()) * 2)\n"}
GOOD_TESTS = [StdioTest(name="good", path="g.py", stdin="21\n", expected="42")]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Things for a hostile program to reach for: a file, an open port, an abstract socket, a process."""
    folder = tmp_path_factory.mktemp("outside")
    folder.chmod(0o777)
    (folder / "expected").write_text("the expected output")
    victim = subprocess.Popen(["sleep", "300"])
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        name = f"\0didpo-test-{os.getpid()}"
        abstract.bind(name)
        abstract.listen()
        yield {
            "file": str(folder / "expected"),
            "tests": __file__,
            "target": str(folder / "written"),
            "port": server.getsockname()[1],
            "abstract": name,
            "pid": os.getpid(),
            "victim": victim.pid,
            "variable": "DIDPO_TEST_VARIABLE",
            "marker": f"didpo-marker-{os.getpid()}",
        }
        assert victim.poll() is None, "the victim was killed"
    victim.kill()
    victim.wait()


ENDS = {Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR}
VERDICTS: dict[str, set[Verdict]] = {
    "fork_bomb": {Verdict.RUNTIME_ERROR},
    "memory_bomb": {Verdict.MEMORY},
    "memory_bomb_many": {Verdict.RUNTIME_ERROR},
    "endless_output": {Verdict.OUTPUT_LIMIT},
    "ignores_sigterm": {Verdict.TIMEOUT},
    "daemon": {Verdict.RUNTIME_ERROR},
    "stack_overflow": {Verdict.RUNTIME_ERROR, Verdict.MEMORY, Verdict.TIMEOUT},
    "disk_fill": {Verdict.OUTPUT_LIMIT, Verdict.RUNTIME_ERROR},
    "deep_folders": {Verdict.WRONG_ANSWER},
    "write_outside": {Verdict.WRONG_ANSWER},
    "read_outside": {Verdict.WRONG_ANSWER},
    "read_environment": {Verdict.WRONG_ANSWER},
    "sockets": {Verdict.WRONG_ANSWER},
    "kill_grader": {Verdict.WRONG_ANSWER},
    "unshare_mount": {Verdict.WRONG_ANSWER},
    "symlink_escape": {Verdict.WRONG_ANSWER},
    "own_descriptors": ENDS,
}


def processes_with(marker: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().decode("utf-8", "replace")
            except OSError:
                continue
            if marker in line:
                found.append(line)
    return found


def test_every_program_of_the_folder_has_a_verdict() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(VERDICTS)


@pytest.mark.parametrize("name", sorted(VERDICTS))
def test_hostile_program(sandbox: Sandbox, given: dict[str, Any], name: str) -> None:
    os.environ["DIDPO_TEST_VARIABLE"] = "secret"
    escaped = StdioTest(name="t", path="h.py", stdin=json.dumps(given), expected="ESCAPED")
    start = time.monotonic()
    result = sandbox.grade({"h.py": (FOLDER / f"{name}.py").read_text()}, [escaped], limits=LIMITS)["t"]
    assert result.verdict in VERDICTS[name], result
    assert "ESCAPED" not in result.detail.partition("expected")[0]
    assert time.monotonic() - start < 30  # a hang, not a speed: the limit is 3 s
    assert not Path(given["target"]).exists()
    assert sandbox.grade(GOOD, GOOD_TESTS)["good"].passed


@pytest.mark.parametrize(
    "name", ["fork_bomb", "memory_bomb_many", "daemon", "ignores_sigterm", "kill_grader", "disk_fill"]
)
def test_hostile_command_of_an_agent(sandbox: Sandbox, given: dict[str, Any], name: str) -> None:
    """The same where a program may start processes."""
    files = {"h.py": (FOLDER / f"{name}.py").read_text(), "in.json": json.dumps(given)}
    result = sandbox.run_command(files, "timeout 60 python3 h.py < in.json", limits=SHELL)
    assert result.verdict is not Verdict.SANDBOX_ERROR, result.output
    if name == "memory_bomb_many" and sandbox.level == "namespaced":
        assert result.verdict is Verdict.MEMORY
    assert processes_with(given["marker"]) == []
    assert processes_with("timeout 60 python3 h.py") == []
    again = sandbox.run_command({"a.txt": "1"}, "ls")
    assert (again.output, again.exit_code) == ("a.txt\n", 0)


def test_links_to_the_outside_are_not_read(sandbox: Sandbox, given: dict[str, Any]) -> None:
    command = (
        f"ln -s {given['file']} secret.txt; ln -s / root; ln -s {Path(given['file']).parent} folder; echo 1 > own.txt"
    )
    result = sandbox.run_command({"a.txt": "x"}, command)
    assert result.files == {"a.txt": "x", "own.txt": "1\n"}


def test_sleeping_child_that_shares_stdout(sandbox: Sandbox, given: dict[str, Any]) -> None:
    """Case C24 a: a child with a unique argument, SIGTERM ignored, then a loop; ended within 5 s at a limit of 2 s."""
    command = "trap '' TERM; sleep 300.4242 & while true; do :; done"
    start = time.monotonic()
    result = sandbox.run_command({}, command, limits=Limits(cpu_s=2.0, wall_s=2.0, processes=8))
    assert result.verdict is Verdict.TIMEOUT
    assert time.monotonic() - start < 5
    assert processes_with("300.4242") == []


def test_memory_is_limited_by_name_of_the_case(sandbox: Sandbox) -> None:
    """Case C24 d: 4 GB under a limit of 512 MB, beside a program that goes on."""
    tests = [CallTest(name=str(n), path="s.py", function="f", args=(n,), expected=n) for n in (1, 4 << 30, 2)]
    source = "def f(n):\n    return len(bytearray(n))\n"
    results = sandbox.grade({"s.py": source}, tests, limits=Limits(memory_mb=512))
    assert [r.verdict for r in results.values()] == [Verdict.PASSED, Verdict.MEMORY, Verdict.PASSED]


def test_no_descriptor_or_folder_is_left(tmp_path: Path) -> None:
    with open_sandbox(require="process", workers=1) as warm:
        warm.grade(GOOD, GOOD_TESTS)
    before = sorted(os.listdir("/proc/self/fd"))
    with open_sandbox(require="process", workers=2) as opened:
        opened.grade_many([(GOOD, GOOD_TESTS)] * 4)
        opened.run_command({}, "true")
        workers = [w for w in [*opened._pool._slots.queue, *opened._shells._slots.queue] if w is not None]
        assert workers
    assert all(w.process.returncode is not None for w in workers)
    assert not any(w.home and Path(w.home).exists() for w in workers)
    assert sorted(os.listdir("/proc/self/fd")) == before
