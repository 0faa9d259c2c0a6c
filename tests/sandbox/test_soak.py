"""The soak benchmark in short: 120 programs, every hostile one among them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "sandbox_soak.py"


def test_nothing_is_left_and_no_verdict_changes() -> None:
    command = [sys.executable, str(SCRIPT), "--programs", "120", "--hostile", "17"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads(run.stdout)
    assert report["faults"] == []
    assert report["left_behind"] == []
