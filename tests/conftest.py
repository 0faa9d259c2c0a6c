"""Shared fixtures. Real benchmark rows live outside the repository: a clone without them skips those tests."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real benchmark rows: `DIDPO_SHARED_DATA`, or shared/data beside the repository."""
    folder = Path(os.environ.get("DIDPO_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real benchmark rows at {folder}; set DIDPO_SHARED_DATA to their folder")
    return folder
