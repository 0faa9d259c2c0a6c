"""Which level a machine gets, for root and for an ordinary user, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from didpo.errors import UserError
from didpo.sandbox import LEVELS, Sandbox, canaries, open_sandbox, probe
from didpo.sandbox.results import SandboxReport

SOURCE = Path(__file__).resolve().parents[2] / "src"
AS_USER = """
import json, os, sys
uid = int(sys.argv[1])
if uid:
    os.setgroups([]), os.setresgid(uid, uid, uid), os.setresuid(uid, uid, uid)
sys.path.insert(0, sys.argv[2])
from didpo.sandbox import Limits, canaries, open_sandbox
from didpo.types import AssertTest, CallTest, StdioTest
files = {"p.py": "print(int(input()) + 1)\\n", "s.py": "def f(x):\\n    return x * 2\\n"}
tests = [
    StdioTest(name="io", path="p.py", stdin="1\\n", expected="2"),
    CallTest(name="call", path="s.py", function="f", args=(2,), expected=4),
    AssertTest(name="assert", path="s.py", code="assert f(3) == 6"),
]
for level in ("namespaced", "filtered"):
    leaks = [c.name for c in canaries.try_level(level) if not c.contained]
    with open_sandbox(level=level, workers=1) as sandbox:
        passed = [r.passed for r in sandbox.grade(files, tests).values()]
        bomb = "import os\\nwhile True:\\n    os.fork()\\n"
        command = sandbox.run_command({"b.py": bomb}, "id -u; timeout 5 python3 b.py 2>/dev/null; cat /etc/passwd",
                                      limits=Limits(cpu_s=2, wall_s=3, processes=16))
        print(json.dumps({"level": level, "leaks": leaks, "passed": passed, "out": command.output, "uid": os.getuid()}))
"""


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can become another user; other users run all tests as themselves"
)
def test_as_an_ordinary_user(tmp_path: Path) -> None:
    python = next((p for p in (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin")) if p), "")
    if not os.access("/root", os.X_OK) or str(Path(python).resolve()).startswith("/root"):
        python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or ""
    if not python or subprocess.run([python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]).returncode:
        pytest.skip("no Python 3.11 that another user can run")
    command = [python, "-I", "-c", AS_USER, "65432", str(SOURCE)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd="/")
    assert run.returncode == 0, run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert [line["level"] for line in lines] == ["namespaced", "filtered"]
    for line in lines:
        assert line["uid"] == 65432
        assert line["leaks"] == []
        assert line["passed"] == [True, True, True]
        assert "root:" not in line["out"]


def test_probe_names_the_best_level_and_what_was_tried() -> None:
    report = probe()
    assert report.level in LEVELS
    names = {canary.name for canary in report.canaries}
    assert {"read /etc/passwd", "fork", "connect by TCP", "signal the grader", "make a namespace", "mount"} <= names


def test_a_plain_process_is_seen_to_contain_nothing() -> None:
    """The canaries can fail: without confinement, most of the forbidden things work."""
    worked = {canary.name for canary in canaries.try_level("process") if not canary.contained}
    assert {"read the grader's file", "write outside", "connect by TCP", "fork", "signal the grader"} <= worked


@pytest.mark.parametrize(
    ("offered", "require", "level", "word"),
    [
        ("process", "filtered", None, "weaker than the required filtered"),
        ("filtered", "namespaced", None, "weaker than the required namespaced"),
        ("filtered", "filtered", "namespaced", "offers sandbox level filtered, not namespaced"),
        ("namespaced", "filtered", "process", "weaker than the required filtered"),
        ("namespaced", "filterd", None, "did you mean 'filtered'"),
    ],
)
def test_require_fails_closed(
    monkeypatch: pytest.MonkeyPatch, offered: str, require: str, level: str | None, word: str
) -> None:
    report = SandboxReport(level=offered)  # type: ignore[arg-type]
    monkeypatch.setattr(canaries, "probe", lambda: report)
    with pytest.raises(UserError, match=word):
        open_sandbox(require=require, level=level)  # type: ignore[arg-type]


def test_level_is_public_and_reports_are_data(sandbox: Sandbox) -> None:
    assert sandbox.level in LEVELS
    assert json.dumps(dataclasses.asdict(probe()))
