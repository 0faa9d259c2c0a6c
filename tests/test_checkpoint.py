"""Checkpoints and run directories: whole or absent, whatever moment the process is killed at."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from didpo import checkpoint
from didpo.errors import UserError
from didpo.rundir import RunDir, prepare, read_jsonl, write_atomic
from didpo.settings import PRESETS

SMOKE = PRESETS["smoke"]


def test_round_trip_restores_tensors_counters_and_random_states(tmp_path: Path) -> None:
    state = {"model": {"w": torch.arange(3.0)}, "optimiser": {"state": {0: {"step": torch.tensor(2.0)}}, "lr": 0.1}}
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    path = checkpoint.save(tmp_path, 7, state, {"tokens": 12})
    drawn = random.random(), np.random.rand(), torch.rand(1).item()
    loaded, manifest = checkpoint.load(path)
    assert torch.equal(loaded["model"]["w"], torch.arange(3.0)) and loaded["optimiser"]["lr"] == 0.1
    assert manifest["step"] == 7 and manifest["tokens"] == 12
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == drawn


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 9, 10):
        checkpoint.save(tmp_path, step, {}, {}, keep=2)
    assert [p.name for p in checkpoint.list_checkpoints(tmp_path)] == ["step_00009", "step_00010"]


WRITER = """
import sys, torch
from pathlib import Path
from didpo import checkpoint
folder = Path(sys.argv[1])
for step in range(1, 10000):
    checkpoint.save(folder, step, {"w": torch.full((300_000,), float(step))}, {}, keep=2)
    print(step, flush=True)
"""


@pytest.mark.parametrize("delay_ms", [0, 3, 7, 13])
def test_kill_while_writing_loses_nothing_that_was_written(tmp_path: Path, delay_ms: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert process.stdout is not None
    for _ in range(3):
        seen = int(process.stdout.readline())
    time.sleep(delay_ms / 1000)  # into the middle of a write
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split()
    process.wait()
    seen = max([seen, *map(int, rest)])
    left = checkpoint.list_checkpoints(tmp_path)
    assert left and int(left[-1].name.removeprefix("step_")) >= seen
    for path in left:
        state, manifest = checkpoint.load(path)
        assert torch.equal(state["w"], torch.full((300_000,), float(manifest["step"])))
    # what the kill left half-written is cleared by the next save
    checkpoint.save(tmp_path, 20000, {}, {}, keep=1)
    assert [p.name for p in tmp_path.iterdir()] == ["step_20000"]


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, {"w": torch.zeros(4)}, {})
    content = (path / "state.pt").read_bytes()
    (path / "state.pt").write_bytes(content[:-10])
    with pytest.raises(UserError, match="damaged"):
        checkpoint.load(path)
    with pytest.raises(UserError, match="not a checkpoint"):
        checkpoint.load(tmp_path)


def test_metrics_survive_a_cut_off_last_line(tmp_path: Path) -> None:
    run_dir = prepare(tmp_path / "run", SMOKE)
    run_dir.log({"phase": "rl", "step": 1, "loss": float("nan")})
    run_dir.log({"phase": "rl", "step": 2, "loss": 0.5})
    with open(run_dir.metrics, "a") as file:
        file.write('{"phase": "rl", "st')
    assert run_dir.rows("rl") == [{"phase": "rl", "step": 1, "loss": None}, {"phase": "rl", "step": 2, "loss": 0.5}]
    run_dir.rewind(lambda row: row["step"] < 2)
    run_dir.log({"phase": "rl", "step": 2})
    assert [json.loads(line)["step"] for line in run_dir.metrics.read_text().splitlines()] == [1, 2]


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\nnonsense\n{"a": 2}\n')
    with pytest.raises(UserError, match="line 2"):
        read_jsonl(path)


def test_write_atomic_leaves_no_other_file(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a" / "b.txt", "one")
    write_atomic(tmp_path / "a" / "b.txt", "two")
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b.txt"]
    assert (tmp_path / "a" / "b.txt").read_text() == "two"


def test_prepare_protects_what_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    prepare(folder, SMOKE)
    with pytest.raises(UserError, match="--resume"):
        prepare(folder, SMOKE)
    prepare(folder, SMOKE, resume=True)
    with pytest.raises(UserError, match="algorithm: 'didpo', now 'grpo'"):
        prepare(folder, _with(algorithm="grpo"), resume=True)
    (folder / "notes").touch()
    with pytest.raises(UserError, match=r"no run wrote \(notes\)"):
        prepare(folder, SMOKE, overwrite=True)
    (folder / "notes").rename(folder / "summary.json")
    prepare(folder, SMOKE, overwrite=True)
    assert not (folder / "summary.json").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(UserError, match="holds other files"):
        prepare(tmp_path / "other", SMOKE, overwrite=True)
    with pytest.raises(UserError, match="no run to resume"):
        prepare(tmp_path / "nothing", SMOKE, resume=True)
    assert not (tmp_path / "nothing").exists()
    assert RunDir(folder).holds_run


def _with(**changes: object):
    import dataclasses

    return dataclasses.replace(SMOKE, **changes)
