"""The one exception for mistakes a user can mend.

Everything that a user can cause (a bad file, an unknown setting, a model path that is none) raises `UserError` with a
single line that says what to do. The command line prints that line and exits with code 2. Invariants use `assert`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake of the caller; its text is one line that says what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not known: it suggests the nearest one, or lists what there is."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
    return UserError(f"unknown {kind} {name!r}; {hint}")
