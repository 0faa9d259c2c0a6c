"""One sandbox per level for all tests; a level that this machine does not offer is skipped with a reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from didpo.errors import UserError
from didpo.sandbox import Limits, Sandbox, open_sandbox

LIMITS = Limits(cpu_s=1.0, wall_s=4.0, memory_mb=256)


@pytest.fixture(scope="session", params=["namespaced", "filtered"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    try:
        opened = open_sandbox(level=request.param, workers=1, limits=LIMITS)
    except UserError as refused:
        pytest.skip(str(refused))
    with opened:
        yield opened


@pytest.fixture(scope="session")
def best() -> Iterator[Sandbox]:
    with open_sandbox(require="process", workers=2, limits=LIMITS) as opened:
        yield opened
