"""Unified diffs: read, apply exactly or refuse, and locate in a recorded response.

The counts in a hunk's header say how many lines it has; nothing else does. So a removed line that prints as "--- x"
is no file header. Only "\\n" ends a line; "\\r" before it belongs to the line. "\\ No newline at end of file" is a mark
on the line before it, not a line. A hunk applies where its header says and nowhere else, byte for byte, or the whole
patch is refused and no file changes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from didpo.textedit import EditRefused, clean_path, short
from didpo.types import EditSpan, Files

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_OCTAL = re.compile(r"\\([0-7]{3}|.)")
_ESCAPES = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11}
DEV_NULL = "/dev/null"


@dataclass(frozen=True, kw_only=True)
class PatchLine:
    """A line of a hunk. `text` has its line end, except where the no-newline mark follows.

    `start`, `end`: character range of `text` in the patch (where the mark follows, without the line end).
    """

    kind: Literal[" ", "-", "+"]
    text: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Hunk:
    """`old_start` and `new_start` are 1-based; with no old lines, `old_start` is the line after which they go in."""

    old_start: int
    new_start: int
    lines: tuple[PatchLine, ...]

    @property
    def old(self) -> list[str]:
        return [line.text for line in self.lines if line.kind != "+"]

    @property
    def new(self) -> list[str]:
        return [line.text for line in self.lines if line.kind != "-"]


@dataclass(frozen=True, kw_only=True)
class FilePatch:
    """Changes of one file. `old_path` None: it is new; `new_path` None: it is deleted; two names: it is renamed."""

    old_path: str | None
    new_path: str | None
    hunks: tuple[Hunk, ...] = ()

    def removed(self) -> list[tuple[int, str]]:
        """(1-based old line, text without its line end) of every removed line."""
        return [(number, text) for number, kind, text in self._numbered("-", "+") if kind == "-"]

    def added(self) -> list[tuple[int, str]]:
        """(1-based new line, text without its line end) of every added line."""
        return [(number, text) for number, kind, text in self._numbered("+", "-") if kind == "+"]

    def _numbered(self, counted: str, skipped: str) -> list[tuple[int, str, str]]:
        rows: list[tuple[int, str, str]] = []
        for hunk in self.hunks:
            number = hunk.old_start if counted == "-" else hunk.new_start
            for line in hunk.lines:
                if line.kind != skipped:
                    rows.append((number, line.kind, line.text.removesuffix("\n")))
                    number += 1
        return rows


@dataclass(frozen=True, kw_only=True)
class Patched:
    """Files after a patch. Where `error` is set nothing was changed and there are no spans."""

    files: dict[str, str]
    spans: tuple[EditSpan, ...] = ()
    error: str | None = None


# ---------------------------------------------------------------- reading


class _Reader:
    """The lines of a text from `pos` on, each with its line end."""

    def __init__(self, text: str, pos: int = 0) -> None:
        self.text, self.pos = text, pos

    def peek(self) -> str:
        """The next line without moving on; "" at the end."""
        end = self.text.find("\n", self.pos)
        return self.text[self.pos : len(self.text) if end < 0 else end + 1]

    def take(self) -> str:
        line = self.peek()
        self.pos += len(line)
        return line


def parse_patch(text: str) -> list[FilePatch]:
    """The file patches of a unified diff; lines before and between them (git's included) are skipped.

    Raises `EditRefused` with one line where a hunk has not the lines that its header counts, where a hunk belongs to no
    file, for binary patches, and where there is no patch at all.
    """
    reader = _Reader(text)
    patches: list[FilePatch] = []
    git: dict[str, str] = {}  # what git's extended header says of the file at hand
    while line := reader.take():
        if line.startswith("diff --git "):
            _flush(git, patches)
            git = {"diff": line}
        elif line.startswith(("rename from ", "rename to ", "copy from ", "new file ", "deleted file ")):
            word = "copy" if line.startswith("copy") else " ".join(line.split(" ", 2)[:2])
            git[word] = line.rstrip("\r\n").split(" ", 2)[2]
        elif line.startswith(("GIT binary patch", "Binary files ")):
            raise EditRefused("the patch changes a binary file: only text can be patched")
        elif line.startswith("--- ") and reader.peek().startswith("+++ "):
            old, new = _header_path(line), _header_path(reader.take())
            old, new = _strip_prefixes(old, new)
            hunks = []
            while reader.peek().startswith("@@"):
                hunks.append(_read_hunk(reader, new or old or "?"))
            if not hunks:
                raise EditRefused(f"{new or old}: the patch names the file but holds no hunk")
            patches.append(FilePatch(old_path=old, new_path=new, hunks=tuple(hunks)))
            git = {}
        elif _HUNK.match(line):
            raise EditRefused(f"the hunk {short(line.rstrip())} follows no '--- ' and '+++ ' lines, or is one too many")
    _flush(git, patches)
    if not patches:
        raise EditRefused("no patch found: expected lines '--- a/PATH', '+++ b/PATH' and '@@ -1,2 +1,2 @@'")
    return patches


def _flush(git: dict[str, str], patches: list[FilePatch]) -> None:
    """A file that git lists without hunks: renamed, or empty and new or deleted."""
    if "copy" in git:
        raise EditRefused("the patch copies a file: only edits, new, deleted and renamed files can be patched")
    if "rename from" in git and "rename to" in git:
        patches.append(FilePatch(old_path=_unquote(git["rename from"]), new_path=_unquote(git["rename to"])))
    elif "new file" in git or "deleted file" in git:
        old, new = _git_paths(git["diff"])
        patches.append(
            FilePatch(old_path=None if "new file" in git else old, new_path=new if "new file" in git else None)
        )


def _git_paths(line: str) -> tuple[str, str]:
    names = line.rstrip("\r\n").removeprefix("diff --git ")
    middle = len(names) // 2  # both names are the same but for a/ and b/
    old, new = _unquote(names[:middle]), _unquote(names[middle + 1 :])
    if old[:2] != "a/" or new[:2] != "b/" or old[2:] != new[2:]:
        raise EditRefused(f"cannot read the file names of {short(line.rstrip(), 80)}")
    return old[2:], new[2:]


def _header_path(line: str) -> str | None:
    name = line[4:].rstrip("\r\n")
    if not name.startswith('"'):
        name = name.split("\t", 1)[0]  # a time may follow the tab
    name = _unquote(name)
    return None if name == DEV_NULL else name


def _unquote(name: str) -> str:
    """git quotes names with unusual characters: "\\303\\251.py" holds the bytes of é."""
    if len(name) < 2 or name[0] != '"' or '"' not in name[1:]:
        return name
    inner = name[1 : name.rindex('"')]
    out = bytearray()
    pos = 0
    for escape in _OCTAL.finditer(inner):
        out += inner[pos : escape.start()].encode()
        code = escape[1]
        out.append(int(code, 8) & 255 if len(code) == 3 else _ESCAPES.get(code, ord(code) & 255))
        pos = escape.end()
    return (bytes(out) + inner[pos:].encode()).decode("utf-8", "replace")


def _strip_prefixes(old: str | None, new: str | None) -> tuple[str | None, str | None]:
    """Drop git's a/ and b/ where both sides have them."""
    if (old is None or old.startswith("a/")) and (new is None or new.startswith("b/")):
        return old and old[2:], new and new[2:]
    return old, new


def _read_hunk(reader: _Reader, path: str) -> Hunk:
    header = reader.take()
    found = _HUNK.match(header)
    if found is None:
        raise EditRefused(f"{path}: cannot read the hunk header {short(header.rstrip())}")
    old_start, new_start = int(found[1]), int(found[3])
    old_left = 1 if found[2] is None else int(found[2])
    new_left = 1 if found[4] is None else int(found[4])
    lines: list[PatchLine] = []
    while old_left or new_left:
        start = reader.pos
        line = reader.take()
        kind = line[:1]
        if line in ("\n", "\r\n"):  # a blank context line whose space was lost on the way
            kind, text, start = " ", line, start - 1
        else:
            text = line[1:]
        if kind not in (" ", "-", "+") or (kind != "+" and not old_left) or (kind != "-" and not new_left):
            lacking = f"{old_left} old and {new_left} new lines that its header counts"
            raise EditRefused(f"{path}: hunk {short(header.rstrip())} lacks {lacking}")
        old_left -= kind != "+"
        new_left -= kind != "-"
        end = start + 1 + len(text)
        if reader.peek().startswith("\\"):
            reader.take()
            text, end = text.removesuffix("\n"), end - text.endswith("\n")
        elif not text.endswith("\n"):
            text += "\n"  # the patch itself ends here, without its last line end
        lines.append(PatchLine(kind=kind, text=text, start=start + 1, end=end))  # type: ignore[arg-type]
    line = reader.peek()
    if line[:1] in (" ", "-", "+") and line.rstrip() != "--" and not _is_header(reader):  # "-- " begins a signature
        raise EditRefused(f"{path}: hunk {short(header.rstrip())} has more lines than its header counts")
    return Hunk(old_start=old_start, new_start=new_start, lines=tuple(lines))


def _is_header(reader: _Reader) -> bool:
    """Whether the two lines ahead name a file. Asked outside hunks only: inside them the counts rule."""
    line = reader.peek()
    return line.startswith("--- ") and reader.text.startswith("+++ ", reader.pos + len(line))


# ---------------------------------------------------------------- applying


def apply_patch(patch: str | Sequence[FilePatch], files: Files) -> Patched:
    """Apply a patch to `files`: all of it at the places it names, or nothing and an error. Never raises.

    `spans` are ranges of the patch text, one for each run of removed or added lines.
    """
    after = dict(files)
    spans: list[EditSpan] = []
    try:
        patches = parse_patch(patch) if isinstance(patch, str) else patch
        for one in patches:
            _apply_file(one, after, spans)
    except EditRefused as refused:
        return Patched(files=dict(files), error=str(refused))
    return Patched(files=after, spans=tuple(spans))


def _apply_file(patch: FilePatch, files: dict[str, str], spans: list[EditSpan]) -> None:
    old_path = None if patch.old_path is None else clean_path(patch.old_path, files)
    if old_path is not None and old_path not in files:
        raise EditRefused(f"{old_path}: no such file")
    text = "" if old_path is None else files[old_path]
    if old_path is not None and patch.new_path != patch.old_path:
        del files[old_path]
    new_path = None if patch.new_path is None else clean_path(patch.new_path, files)
    if new_path is not None and new_path in files and patch.new_path != patch.old_path:
        raise EditRefused(f"{new_path}: the patch makes the file anew, but it exists")
    path = new_path or old_path
    if path is None:
        raise EditRefused("the patch names /dev/null on both sides")
    new_text = _apply_hunks(patch.hunks, text, path)
    if new_path is not None:
        files[new_path] = new_text
    elif new_text:
        raise EditRefused(f"{path}: the patch deletes the file but not all of its lines")
    for hunk in patch.hunks:
        spans += _hunk_spans(hunk, path)


def _apply_hunks(hunks: Sequence[Hunk], text: str, path: str) -> str:
    lines = text.split("\n")
    lines = [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    out: list[str] = []
    at = 0  # lines of the old text used up
    for hunk in hunks:
        old = hunk.old
        place = hunk.old_start - 1 if old else hunk.old_start
        if place < at or place > len(lines):
            raise EditRefused(f"{path}: a hunk at line {hunk.old_start} is out of order or beyond the end of the file")
        for offset, expected in enumerate(old):
            found = lines[place + offset] if place + offset < len(lines) else None
            if found != expected:
                shown = "the end of the file" if found is None else short(found)
                raise EditRefused(f"{path}: line {place + offset + 1} is {shown}, the patch expects {short(expected)}")
        out += lines[at:place]
        out += hunk.new
        at = place + len(old)
    out += lines[at:]
    broken = next((i for i, line in enumerate(out[:-1]) if not line.endswith("\n")), None)
    if broken is not None:
        raise EditRefused(f"{path}: line {broken + 1} has no line end, but is not the last")
    return "".join(out)


def _hunk_spans(hunk: Hunk, path: str) -> list[EditSpan]:
    """One span for each line that is removed or added: their texts, unlike runs of them, stand in the patch as such.

    All lines added between the same two context lines stand at the first old line that they replace.
    """
    spans = []
    old_line = at = max(0, hunk.old_start - 1) if hunk.old else hunk.old_start
    for line in hunk.lines:
        if line.kind != " " and line.end > line.start:
            kind: Literal["add", "del"] = "del" if line.kind == "-" else "add"
            spans.append(
                EditSpan(
                    path=path,
                    kind=kind,
                    text=line.text[: line.end - line.start],
                    start=line.start,
                    end=line.end,
                    line=at if kind == "add" else old_line,
                )
            )
        old_line += line.kind != "+"
        if line.kind == " ":
            at = old_line
    return spans


def patch_spans(response: str, *, start: int = 0, end: int | None = None) -> tuple[EditSpan, ...]:
    """The removed and added lines of a unified diff that stands in `response[start:end]`, as ranges of the response.

    () where that text is no patch that can be read.
    """
    text = response[start:end]
    try:
        patches = parse_patch(text)
    except EditRefused:
        return ()
    spans = [
        span
        for patch in patches
        for hunk in patch.hunks
        for span in _hunk_spans(hunk, patch.new_path or patch.old_path or "")
    ]
    return tuple(
        EditSpan(path=s.path, kind=s.kind, text=s.text, start=s.start + start, end=s.end + start, line=s.line)
        for s in spans
    )
