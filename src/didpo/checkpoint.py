"""Checkpoints of training: atomic, and complete enough that a resumed run continues bit for bit.

A checkpoint is a folder `step_00010` with `state.pt` (tensors and plain values only, so that it loads without running
code) and `manifest.json` (its hash, and counters). The folder is filled under another name, synced and renamed:
a folder with its final name is whole. Random states are kept, though training derives every seed from (seed, step,
task, rollout): dropout and user code may draw from the global generators.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

from didpo.errors import UserError
from didpo.rundir import sync

FORMAT = 1
_PARTIAL = ".partial-"


def save(folder: Path, step: int, state: dict[str, Any], counters: dict[str, Any], *, keep: int = 2) -> Path:
    """Write `folder/step_XXXXX` and drop all but the newest `keep` checkpoints.

    state: what `torch.load(weights_only=True)` reads back: tensors, and dicts, lists, tuples of plain values.
    counters: JSON values that a reader wants without loading tensors (step, tokens, settings hash).
    """
    import torch

    final = folder / f"step_{step:05d}"
    assert not final.exists(), f"{final} is there already: training resumes from the newest checkpoint"
    folder.mkdir(parents=True, exist_ok=True)
    _remove_unfinished(folder)
    partial = folder / f"{_PARTIAL}{final.name}"
    partial.mkdir()
    torch.save({**state, "random": random_states()}, partial / "state.pt")
    manifest = {"format": FORMAT, "step": step, "sha256": _digest(partial / "state.pt"), **counters}
    (partial / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    for path in (partial / "state.pt", partial / "manifest.json", partial):
        sync(path)
    os.rename(partial, final)
    sync(folder)
    for old in list_checkpoints(folder)[:-keep]:
        going = folder / f"{_PARTIAL}{old.name}"  # a kill while it is removed leaves no half folder with a final name
        os.rename(old, going)
        shutil.rmtree(going)
    return final


def list_checkpoints(folder: Path) -> list[Path]:
    """Whole checkpoints, oldest first."""
    return sorted(folder.glob("step_*"), key=lambda path: int(path.name.removeprefix("step_")))


def load(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(state, manifest) of one checkpoint, with the random states put back.

    Raises UserError where the folder is none of ours or its content is damaged.
    """
    import torch

    try:
        manifest = json.loads((path / "manifest.json").read_text())
        digest = _digest(path / "state.pt")
    except (OSError, json.JSONDecodeError) as error:
        raise UserError(
            f"{path} is not a checkpoint ({error}); name a folder such as checkpoints/step_00010"
        ) from error
    if manifest.get("format") != FORMAT:
        raise UserError(f"{path} has checkpoint format {manifest.get('format')}; this version reads format {FORMAT}")
    if digest != manifest["sha256"]:
        raise UserError(f"{path}/state.pt is damaged; remove {path} to resume from the checkpoint before it")
    state = torch.load(path / "state.pt", weights_only=True)
    restore_random_states(state.pop("random"))
    return state, manifest


def random_states() -> dict[str, Any]:
    """State of the global generators of Python, numpy and torch, as plain values and tensors."""
    import numpy as np
    import torch

    name, keys, *rest = np.random.get_state(legacy=True)
    return {
        "python": random.getstate(),
        "numpy": (name, list(map(int, keys)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_random_states(states: dict[str, Any]) -> None:
    """Undo of `random_states`."""
    import numpy as np
    import torch

    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(states["torch"])
    if states["cuda"]:
        torch.cuda.set_rng_state_all(states["cuda"])


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove_unfinished(folder: Path) -> None:
    for path in folder.glob(f"{_PARTIAL}*"):
        shutil.rmtree(path)
