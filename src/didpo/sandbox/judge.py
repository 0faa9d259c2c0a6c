"""Trusted comparison of what a program returned or printed with what was expected. Runs outside the sandbox."""

from __future__ import annotations

import math
import re
from typing import Any

TOLERANCE = 1e-6  # absolute or relative, for numbers
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\Z")
_INTEGER = re.compile(r"[+-]?\d+\Z")


def close(got: float, expected: float) -> bool:
    """Equal within 1e-6, absolute or relative to the expected value; NaN equals NaN, infinities equal themselves."""
    if got == expected or (math.isnan(got) and math.isnan(expected)):
        return True
    if math.isinf(got) or math.isinf(expected):
        return False
    return abs(got - expected) <= TOLERANCE * max(1.0, abs(expected))


def equal_values(got: Any, expected: Any) -> bool:
    """Equality of builtin values: a tuple equals the list with the same items, floats within 1e-6, integers exactly."""
    if isinstance(expected, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(expected):
            return False
        return all(equal_values(g, e) for g, e in zip(got, expected, strict=True))
    if isinstance(expected, dict):
        if not isinstance(got, dict) or got.keys() != expected.keys():
            return False
        return all(equal_values(got[k], e) for k, e in expected.items())
    if isinstance(got, float) or isinstance(expected, float):
        if not isinstance(got, (int, float)) or not isinstance(expected, (int, float)):
            return bool(got == expected)
        try:
            return close(float(got), float(expected))
        except OverflowError:  # an integer beyond the range of floats
            return bool(got == expected)
    if isinstance(got, complex) and isinstance(expected, complex):
        return close(got.real, expected.real) and close(got.imag, expected.imag)
    return bool(got == expected)


def _equal_tokens(got: str, expected: str) -> bool:
    if got == expected:
        return True
    if not (_NUMBER.match(got) and _NUMBER.match(expected)):
        return False
    if _INTEGER.match(got) and _INTEGER.match(expected):  # exactly, and of any length
        digits = got.lstrip("+-0")
        return digits == expected.lstrip("+-0") and (not digits or (got[0] == "-") == (expected[0] == "-"))
    return close(float(got), float(expected))


def _lines(text: str) -> list[str]:
    """Lines without trailing blanks; empty lines at the end are dropped."""
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def equal_output(got: str, expected: str, compare: str = "tokens") -> bool:
    """Judge printed text. "tokens": blank-separated tokens line by line, number tokens within 1e-6, words exactly.
    "exact": the same text but for CRLF and one final newline. "unordered": the same lines in any order."""
    if compare == "exact":
        return got.replace("\r\n", "\n").removesuffix("\n") == expected.replace("\r\n", "\n").removesuffix("\n")
    got_lines, expected_lines = ([line.split() for line in _lines(text)] for text in (got, expected))
    if compare == "unordered":
        got_lines, expected_lines = sorted(got_lines), sorted(expected_lines)
    got_tokens = [token for line in got_lines for token in line]
    expected_tokens = [token for line in expected_lines for token in line]
    if compare == "unordered" and [len(line) for line in got_lines] != [len(line) for line in expected_lines]:
        return False
    return len(got_tokens) == len(expected_tokens) and all(
        _equal_tokens(g, e) for g, e in zip(got_tokens, expected_tokens, strict=True)
    )


def shorten(text: str, limit: int = 160) -> str:
    """One short line for a `detail`."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
