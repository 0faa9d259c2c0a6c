"""Tasks by name: `load_tasks("repair", split="train", n=100, seed=0, functions=3)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from didpo.errors import unknown_name
from didpo.tasks.repair import repair_tasks
from didpo.types import Task

# name -> f(split=..., n=..., seed=..., **options) -> list[Task]
FAMILIES: dict[str, Callable[..., list[Task]]] = {"repair": repair_tasks}


def load_tasks(name: str, *, split: str = "train", n: int | None = None, seed: int = 0, **options: Any) -> list[Task]:
    """The first `n` tasks of a split (None: all there are, or 100 where tasks are generated).

    `options` belong to the family. Raises `UserError` for an unknown family, split or option.
    """
    if name not in FAMILIES:
        raise unknown_name("task family", name, FAMILIES)
    return FAMILIES[name](split=split, n=n, seed=seed, **options)
