"""Records of published sets whose own reference solution fails their own tests, and why: benchmark -> id -> reason."""

from __future__ import annotations

KNOWN: dict[str, dict[str, str]] = {}
