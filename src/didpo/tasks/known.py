"""Records of published sets whose own reference fails, and why: benchmark -> task id -> reason."""

from __future__ import annotations

_UNPICKLED = "pandas 1.5: astype(str) writes into a frame that came from another process; passes with pandas 3"
_LATER = "written for pandas 1.5 and numpy 1.26: uses what later versions removed or made strict"
_WRITTEN_FOR_OLDER = (
    "33 39 40 47 48 49 61 63 64 82 83 84 88 117 118 119 120 151 152 153 154 155 181 182 183 184 195 196 197 199 200 "
    "201 202 203 204 205 209 210 211 220 221 222 228 257 258 282 283 353 354 442 443 455 "
)

KNOWN: dict[str, dict[str, str]] = {
    "ds1000": {
        **dict.fromkeys(("ds1000/112", "ds1000/113", "ds1000/114"), _UNPICKLED),
        **{f"ds1000/{number}": _LATER for number in _WRITTEN_FOR_OLDER.split()},
    },
}
