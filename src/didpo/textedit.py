"""Edits of one text, exact to the byte: find the one place, replace or insert there, keep the line ends of the place.

Only "\\n" ends a line, alone or as "\\r\\n". Bytes that an edit does not name stay as they are. What cannot be done
exactly is refused: `EditRefused` carries one line for whoever wrote the edit.
"""

from __future__ import annotations

import re
from bisect import bisect_left

from didpo.types import Files


class EditRefused(Exception):
    """One line that says why an edit was not applied."""


def short(text: str, limit: int = 40) -> str:
    return repr(text if len(text) <= limit else text[: limit - 3] + "...")


def clean_path(path: str, files: Files) -> str:
    """The path in normal form; one that leaves the workspace, or that cannot be a file beside `files`, is refused."""
    parts = [part for part in path.strip().split("/") if part not in ("", ".")]
    shown = short(path, 80)
    if not parts:
        raise EditRefused(f"{shown} names no file")
    if path.strip().startswith(("/", "~")) or ".." in parts or re.match(r"[A-Za-z]:[\\/]|\\", path.strip()):
        raise EditRefused(f"{shown} leaves the workspace: give a path relative to it")
    if any(ord(c) < 32 or c == "\x7f" or "\ud800" <= c <= "\udfff" for c in path):
        raise EditRefused(f"{shown} holds a character that no path may hold")
    if any(len(part.encode()) > 255 for part in parts) or len(path.encode()) > 1024:
        raise EditRefused(f"{shown} is too long a path")
    clean = "/".join(parts)
    if clean not in files:
        folder = clean + "/"
        if any(other.startswith(folder) for other in files):
            raise EditRefused(f"{shown} is a folder")
        if any("/".join(parts[:n]) in files for n in range(1, len(parts))):
            raise EditRefused(f"{shown} lies below a file")
    return clean


def replace_once(search: str, new: str, path: str, old: str) -> tuple[str, int]:
    """`old` with the one place of `search` replaced, and the 0-based line at which it stood. `search` is not empty.

    It is looked up as written first; where it does not stand so, a line end in it may match "\\r\\n", and a final line
    end the end of a text without one. The new lines take the line ends of the place.
    """
    start, end = _one_place(search, path, old)
    if search.endswith("\n") and end == len(old) and not old.endswith("\n"):
        new = new.removesuffix("\n").removesuffix("\r")  # the file had no final line end, and keeps none
    new = _with_line_ends(new, _line_ends(old, start, end))
    return old[:start] + new + old[end:], old.count("\n", 0, start)


def insert_lines(new: str, path: str, old: str, *, line: int | None, after: str | None) -> tuple[str, int]:
    """`old` with whole lines put in after line `line` (0 = top), or after the one line that holds the text `after`."""
    n_lines = old.count("\n") + (old != "" and not old.endswith("\n"))
    if not new:
        raise EditRefused(f"{path}: <insert> is empty")
    if line is None:
        assert after is not None
        line = old.count("\n", 0, _one_place(after, path, old)[0]) + 1
    if line > n_lines:
        raise EditRefused(f"{path}: <insert line={line}> but the file has {n_lines} lines")
    at = 0
    for _ in range(line):
        found = old.find("\n", at)
        at = len(old) if found < 0 else found + 1
    head, tail = old[:at], old[at:]
    end = _line_ends(old, max(0, at - 2), at)[-1:]
    if head and not head.endswith("\n"):
        head += end[0]
    return head + _with_line_ends(new if new.endswith("\n") else new + "\n", end) + tail, line


def _one_place(search: str, path: str, text: str) -> tuple[int, int]:
    """The range [start, end) of the one place where `search` stands in `text`."""
    places = _starts(search, text)
    if len(places) == 1:
        return places[0], places[0] + len(search)
    if not places:
        ranges = _loose_places(search, text)
        if len(ranges) == 1:
            return ranges[0]
        if not ranges:
            raise EditRefused(f"{path}: the search text {short(search)} stands nowhere in the file")
        places = [start for start, _ in ranges]
    lines = ", ".join(str(text.count("\n", 0, p) + 1) for p in places[:5]) + (", ..." if len(places) > 5 else "")
    number = "more than 100 places" if len(places) > 100 else f"{len(places)} places"
    raise EditRefused(
        f"{path}: the search text {short(search)} stands at {number} (lines {lines}): add lines around it"
    )


def _starts(search: str, text: str) -> list[int]:
    """Starts of all occurrences, overlapping ones too; stops at 101."""
    places: list[int] = []
    pos = text.find(search)
    while pos >= 0 and len(places) <= 100:
        places.append(pos)
        pos = text.find(search, pos + 1)
    return places


def _loose_places(search: str, text: str) -> list[tuple[int, int]]:
    """Places where line ends may differ: looked up in a view of the text in which every line ends in "\\n"."""
    view, wanted = text.replace("\r\n", "\n"), search.replace("\r\n", "\n")
    if wanted.endswith("\n") and not view.endswith("\n"):
        view += "\n"
    starts = _starts(wanted, view)
    if not starts:
        return []
    cr_lines: list[int] = []  # view position of each line end that is "\r\n" in the text
    pos = text.find("\r\n")
    while pos >= 0:
        cr_lines.append(pos - len(cr_lines))
        pos = text.find("\r\n", pos + 2)

    def to_text(p: int) -> int:
        return min(len(text), p + bisect_left(cr_lines, p))

    return [(to_text(s), to_text(s + len(wanted))) for s in starts]


def _line_ends(text: str, start: int, end: int) -> list[str]:
    """The line ends inside text[start:end]; where there is none, that of the line (or else the line before)."""
    inside = re.findall(r"\r?\n", text[start:end])
    if inside:
        return inside
    at = text.find("\n", end)
    if at < 0:
        at = text.rfind("\n", 0, start)
    return ["\r\n" if at > 0 and text[at - 1] == "\r" else "\n"]


def _with_line_ends(new: str, ends: list[str]) -> str:
    """`new` with its k-th line end replaced by the k-th of `ends` (the last one serves all further lines)."""
    if "\r\n" not in new and all(e == "\n" for e in ends):
        return new
    lines = new.replace("\r\n", "\n").split("\n")
    return "".join(line + ends[min(k, len(ends) - 1)] for k, line in enumerate(lines[:-1])) + lines[-1]
