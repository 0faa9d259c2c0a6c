"""Response text -> one action, with the exact character range of every payload; and the action applied to files.

Grammar. A response is free text with at most one kind of action in it:

    <think> never an action </think>
    <edit PATH>                              also <edit path="PATH">; several <edit> blocks may follow each other
      <search>old</search><replace>new</replace>      one or more pairs, or
      <insert line="N">new lines</insert>             after line N (0 = top), or <insert after="unique text">, or
      <code>whole file</code>
    </edit>
    <execute_bash>command</execute_bash>     also <run>command</run>
    <finish>                                 also <finish/> and <finish>words</finish>

Rules:
- One line end directly after an opening tag is not payload; all else up to the closing tag is, byte for byte.
- A closing tag counts only where the grammar can go on after it (`</code>` before `</edit>`, `</search>` before
  `<replace>`, ...), so that "</code>" inside a string of the payload stays payload. What is ambiguous is refused.
- Edits win over <finish>: whoever edits sees the effect before the end. Edits and a command together are refused.
- A tag in backticks is a mention. An unopened `</think>` ends a thought that the prompt had opened.
- A <code> payload that is one fenced block (first line ```, last line ```) means the text inside the fence, except in
  Markdown files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from didpo.textedit import EditRefused, clean_path, insert_lines, replace_once, short
from didpo.types import EditSpan, Files, Step

# ---------------------------------------------------------------- types


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Text of the response and its character range: `response[start:end] == text`."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One change of one file. `text` is the replacement, the inserted lines or the whole file.

    "replace" has `search`; "insert" has `line` (after that line, 0 = top) or `after` (a text that stands in one line).
    """

    path: str
    op: Literal["replace", "insert", "overwrite"]
    text: Piece
    search: Piece | None = None
    line: int | None = None
    after: str | None = None


@dataclass(frozen=True, kw_only=True)
class Action:
    """What a response asks for. `error` is one line for the agent where the kind is "invalid"."""

    kind: Literal["edit", "run", "finish", "invalid"]
    edits: tuple[Edit, ...] = ()
    command: str | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Applied:
    """Files after an action. Where `error` is set nothing was changed and there are no spans."""

    files: dict[str, str]
    spans: tuple[EditSpan, ...] = ()
    error: str | None = None


# ---------------------------------------------------------------- parsing

# No pattern scans past the next "<" or quote, so that parsing is linear in the length of the response.
_TOP = re.compile(
    r"(?<!`)(?:<(?P<open>think|execute_bash|run|finish)[ \t]*(?P<slash>/?)>"
    r"|<edit(?P<path>[ \t][^<>\n]{0,1024})?>"
    r"|</(?P<close>think|edit|search|replace|insert|code|execute_bash|run)>)"
)
_CHILD = re.compile(
    r"<(?:(?P<tag>search|code)"
    r"|insert[ \t]+(?:line[ \t]*=[ \t]*(?P<q>[\"']?)(?P<line>[0-9]{1,9})(?P=q)"
    r"|after[ \t]*=[ \t]*(?:\"(?P<dq>[^\"\n]+)\"|'(?P<sq>[^'\n]+)'))"
    r"[ \t]*)>"
)
_REPLACE = re.compile(r"\s*<replace>")
_BLANK = re.compile(r"\s*")
# What a payload holds only where its own closing tag was forgotten: the start of the next edit.
_NEXT_EDIT = re.compile(r"</edit>\s*<edit[ \t>]|<edit(?:[ \t][^<>\n]{0,1024})?>\s*<(?:search>|code>|insert[ \t])")
# A closing tag together with what may follow it.
_BOUNDARY = re.compile(
    r"</(?:(?P<search>search)>(?=\s*<replace>)|(?P<code>code)>(?=\s*</edit>)"
    r"|(?P<replace>replace)>(?=\s*(?:<search>|<insert[ \t]|</edit>))"
    r"|(?P<insert>insert)>(?=\s*(?:<search>|<insert[ \t]|</edit>)))"
)
_PATH_ATTRIBUTE = re.compile(r"path[ \t]*=[ \t]*(.*)", re.DOTALL)
_FENCED = re.compile(r"[ \t]*(`{3,})[^`\r\n]*\r?\n")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def parse(response: str, *, default_path: str | None = None) -> Action:
    """The action that a response asks for; never raises. `default_path` serves `<edit>` without a path."""
    try:
        return _scan(response, 0, default_path)
    except EditRefused as refused:
        opened, closed = response.find("<think>"), response.find("</think>")
        if closed < 0 or 0 <= opened < closed:
            return Action(kind="invalid", error=str(refused))
    try:  # what went wrong may have been a draft inside a thought that the prompt had opened
        return _scan(response, closed + len("</think>"), default_path)
    except EditRefused as refused:
        return Action(kind="invalid", error=str(refused))


def _scan(response: str, pos: int, default_path: str | None) -> Action:
    edits: list[Edit] = []
    commands: list[str] = []
    finish = False
    while found := _TOP.search(response, pos):
        pos = found.end()
        name = found["open"] or found["close"] or "edit"
        if found["close"] == "think":
            edits, commands, finish = [], [], False  # all before it was a thought
        elif found["close"]:
            raise EditRefused(f"</{name}> closes nothing: is a closing tag doubled, or part of a payload?")
        elif name == "think":
            pos = _find_close(response, pos, name)[1]
        elif name == "finish":
            finish = True
        elif name == "edit":
            pos = _parse_edit(response, pos, _path_of(found["path"], default_path), edits)
        elif found["slash"]:
            raise EditRefused(f"<{name}/> holds no command")
        else:
            end, pos_after = _find_close(response, pos, name)
            commands.append(response[pos:end].strip())
            pos = pos_after
    return _choose(edits, commands, finish)


def _choose(edits: list[Edit], commands: list[str], finish: bool) -> Action:
    if edits and commands:
        raise EditRefused("one kind of action in a response: either edits or one command")
    if len(commands) > 1:
        raise EditRefused("one command in a response; join several with && or ;")
    if edits:
        return Action(kind="edit", edits=tuple(edits))
    if commands:
        if not commands[0] or "\0" in commands[0]:
            raise EditRefused("the command is empty" if not commands[0] else "the command holds a NUL character")
        return Action(kind="run", command=commands[0])
    if finish:
        return Action(kind="finish")
    raise EditRefused("no action found: write <edit PATH>, <execute_bash> or <finish>")


def _find_close(response: str, pos: int, name: str) -> tuple[int, int]:
    end = response.find(f"</{name}>", pos)
    if end < 0:
        raise EditRefused(f"<{name}> is not closed by </{name}>")
    return end, end + len(name) + 3


def _path_of(raw: str | None, default_path: str | None) -> str:
    text = (raw or "").strip()
    if attribute := _PATH_ATTRIBUTE.fullmatch(text):
        text = attribute[1].strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1].strip()
    if text:
        return text
    if default_path is None:
        raise EditRefused("<edit> names no file: write <edit PATH>")
    return default_path


def _parse_edit(response: str, pos: int, path: str, edits: list[Edit]) -> int:
    """Read the body of an <edit> from `pos`, append its edits, and return the position after </edit>."""
    first = len(edits)
    while True:
        pos = _skip_blank(response, pos)
        if response.startswith("</edit>", pos):
            if len(edits) == first:
                raise EditRefused(f"{path}: <edit> is empty: give <search>..</search><replace>..</replace> or <code>")
            return pos + len("</edit>")
        child = _CHILD.match(response, pos)
        if child is None:
            raise EditRefused(_bad_child(response, pos, path))
        if len(edits) > first and (child["tag"] == "code" or edits[-1].op == "overwrite"):
            raise EditRefused(f"{path}: <code> writes the whole file and stands alone in its <edit>")
        tag = child["tag"] or "insert"
        piece, pos = _payload(response, child.end(), tag, path)
        if tag == "search":
            opened = _REPLACE.match(response, pos)
            assert opened is not None  # the boundary looked ahead
            new, pos = _payload(response, opened.end(), "replace", path)
            edits.append(Edit(path=path, op="replace", text=new, search=piece))
        elif tag == "code":
            edits.append(Edit(path=path, op="overwrite", text=_unfence(piece, path)))
        else:
            line = int(child["line"]) if child["line"] is not None else None
            edits.append(Edit(path=path, op="insert", text=piece, line=line, after=child["dq"] or child["sq"]))


def _skip_blank(response: str, pos: int) -> int:
    blank = _BLANK.match(response, pos)
    assert blank is not None
    return blank.end()


def _bad_child(response: str, pos: int, path: str) -> str:
    if pos >= len(response):
        return f"{path}: <edit> is not closed by </edit>"
    return f"{path}: expected <search>, <insert line=..>, <code> or </edit>, found {short(response[pos : pos + 60])}"


def _payload(response: str, start: int, tag: str, path: str) -> tuple[Piece, int]:
    if response.startswith("\n", start):
        start += 1
    elif response.startswith("\r\n", start):
        start += 2
    boundary = _BOUNDARY.search(response, start)
    if boundary is None or boundary[tag] is None:
        raise EditRefused(_not_closed(response, start, tag, path))
    end = boundary.start()
    if _NEXT_EDIT.search(response, start, end):
        raise EditRefused(_not_closed(response, start, tag, path))
    text = response[start:end]
    if not text.isascii() and _SURROGATE.search(text):
        raise EditRefused(f"{path}: the text of <{tag}> is not valid Unicode")
    return Piece(text=text, start=start, end=end), boundary.end()


def _not_closed(response: str, start: int, tag: str, path: str) -> str:
    if tag == "search" and f"</{tag}>" in response[start:]:
        return f"{path}: </search> must be followed by <replace>"
    if f"</{tag}>" in response[start:]:
        return f"{path}: </{tag}> must be followed by </edit>"
    return f"{path}: <{tag}> is not closed by </{tag}>"


def _unfence(piece: Piece, path: str) -> Piece:
    """A payload that is one fenced block stands for the text inside; the range shrinks with it."""
    opened = _FENCED.match(piece.text)
    if opened is None or path.lower().endswith((".md", ".markdown", ".rst", ".txt")):
        return piece
    body = piece.text.rstrip()
    if not body.endswith("\n" + opened[1]):
        return piece
    first, last = opened.end(), len(body) - len(opened[1])
    return Piece(text=piece.text[first:last], start=piece.start + first, end=piece.start + last)


# ---------------------------------------------------------------- applying


def apply(action: Action | Sequence[Edit], files: Files) -> Applied:
    """Apply the edits in order, each on the result of the one before: all of them, or none and an error.

    A search must stand at exactly one place, overlapping places counted (how it is looked up: `textedit`). An empty
    search fills a new or empty file. Actions without edits change nothing.
    """
    edits = action.edits if isinstance(action, Action) else tuple(action)
    error = action.error if isinstance(action, Action) else None
    after = dict(files)
    spans: list[EditSpan] = []
    try:
        for edit in edits:
            path = clean_path(edit.path, after)
            after[path], line = _apply_one(edit, path, after.get(path))
            spans += _spans_of(edit, path, line)
    except EditRefused as refused:
        return Applied(files=dict(files), error=str(refused))
    return Applied(files=after, spans=tuple(spans), error=error)


def _apply_one(edit: Edit, path: str, old: str | None) -> tuple[str, int]:
    """The text after the edit, and the 0-based line of the text before it where the edit stands."""
    if edit.op == "overwrite":
        return edit.text.text, 0
    if edit.search is not None and not edit.search.text:
        if old:
            raise EditRefused(f"{path}: <search> is empty, the file is not: name the text to replace")
        return edit.text.text, 0
    if old is None:
        raise EditRefused(f"{path}: no such file; <code> makes a new one")
    if edit.op == "insert":
        return insert_lines(edit.text.text, path, old, line=edit.line, after=edit.after)
    assert edit.search is not None
    return replace_once(edit.search.text, edit.text.text, path, old)


def _spans_of(edit: Edit, path: str, line: int) -> list[EditSpan]:
    kind: Literal["add", "overwrite"] = "overwrite" if edit.op == "overwrite" else "add"
    named: list[tuple[Literal["add", "del", "overwrite"], Piece]] = [(kind, edit.text)]
    if edit.search is not None:
        named.insert(0, ("del", edit.search))
    return [
        EditSpan(path=path, kind=k, text=p.text, start=p.start, end=p.end, line=line) for k, p in named if p.text != ""
    ]


# ---------------------------------------------------------------- what credit reads from a recorded step


def edit_spans(step: Step) -> tuple[EditSpan, ...]:
    """The accepted edits of a step: as recorded, or else parsed and checked against `files_before`.

    () where the step edits nothing, where an edit was refused, and where the response was cut off. Without
    `files_before` the spans are taken as written, at line 0.
    """
    if step.edits is not None:
        return tuple(step.edits)
    applied = _replay(step)
    return applied.spans if applied is not None else ()


def files_after(step: Step) -> dict[str, str] | None:
    """The files after a step: as recorded, or computed from `files_before`; None where that cannot be known."""
    if step.files_after is not None:
        return dict(step.files_after)
    if step.files_before is None:
        return None
    if step.edits is not None and not step.edits:
        return dict(step.files_before)
    applied = _replay(step)
    if applied is None:  # recorded edits that the response does not spell out in this grammar
        return None if step.edits else dict(step.files_before)
    return None if step.edits and applied.error else applied.files


def _replay(step: Step) -> Applied | None:
    """The step's edits applied again; None where the response holds none or they were not run."""
    if step.finish_reason == "length" or step.action not in (None, "edit"):
        return None
    before = step.files_before
    action = parse(step.response, default_path=next(iter(before)) if before and len(before) == 1 else None)
    if action.kind != "edit":
        return None
    if before is not None:
        return apply(action, before)
    spans = [span for edit in action.edits for span in _spans_of(edit, edit.path, 0)]
    return Applied(files={}, spans=tuple(spans))
