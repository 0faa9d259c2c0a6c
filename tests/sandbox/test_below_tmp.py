"""The interpreter's packages may lie below /tmp, where the sandbox otherwise keeps its private disk."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from didpo.sandbox import open_sandbox, pool, probe
from didpo.types import StdioTest


def test_packages_below_tmp_are_readable_and_the_disk_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    if probe().level != "namespaced":
        pytest.skip("this machine has no namespaces")
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    (folder / "lying_there.py").write_text("VALUE = 7\n")
    usual = pool.site_folders()
    monkeypatch.setattr(pool, "site_folders", lambda: [*usual, str(folder)])
    program = "import lying_there, os, tempfile\nopen('x', 'w').close()\nprint(lying_there.VALUE, len(os.listdir()))\n"
    refused = f"open({str(folder / 'y')!r}, 'w')\n"
    tests = [StdioTest(name="a", path="a.py", stdin="", expected="7 2")]
    try:
        with open_sandbox(require="namespaced", workers=1) as sandbox:
            assert sandbox.grade({"a.py": program}, tests)["a"].passed
            assert not sandbox.grade({"a.py": program + refused}, tests)["a"].passed
    finally:
        shutil.rmtree(folder)
