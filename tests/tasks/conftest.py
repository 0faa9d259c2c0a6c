"""One sandbox for the tests of the loaders, at the best level that the machine allows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from didpo.sandbox import Sandbox, open_sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox(require="process", workers=2) as opened:
        yield opened
