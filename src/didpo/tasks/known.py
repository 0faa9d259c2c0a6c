"""Records of published sets whose own reference fails, and why: benchmark -> task id -> reason."""

from __future__ import annotations

_UNPICKLED = "pandas 1.5: astype(str) writes into a frame that came from another process; passes with pandas 2 and 3"

KNOWN: dict[str, dict[str, str]] = {
    "ds1000": {
        "ds1000/112": _UNPICKLED,
        "ds1000/113": _UNPICKLED,
        "ds1000/114": _UNPICKLED,
    },
}
