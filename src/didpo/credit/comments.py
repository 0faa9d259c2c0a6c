"""Comment removal for matching: a lexer of lines that also survives code that does not parse.

It knows strings (also those over several lines) and comments, nothing else; the syntax goes by the file's extension,
and a file of an unknown extension keeps its comments. Results per line are remembered, since agents write the same
lines again and again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

_BLANKS = " \t\r"
_REMEMBERED = 200_000  # lines per syntax


@dataclass(eq=False)
class Syntax:
    """How a language writes comments and strings.

    `line`: regular expression of a mark that begins a comment to the end of the line. `blocks`: opening mark -> closing
    mark of comments. `strings`: quotes that end with the line at the latest; `long_strings`: quotes that may run over
    lines. A backslash keeps the next character from ending a string where `escapes` is set.
    """

    line: str = ""
    blocks: dict[str, str] = field(default_factory=dict)
    strings: tuple[str, ...] = ('"', "'")
    long_strings: tuple[str, ...] = ()
    escapes: bool = True
    nested: bool = False  # Python: quotes may stand inside the braces of an f-string

    def __post_init__(self) -> None:
        marks = [*self.blocks, *self.long_strings, *self.strings]
        prefix = r"(?P<f>\b[rRbBuUfFtT]{1,2}(?=[\"']))?" if self.nested else ""
        parts = [f"(?P<line>{self.line})"] if self.line else []
        parts.append(f"{prefix}(?P<open>{'|'.join(map(re.escape, marks))})" if marks else "(?P<open>(?!))")
        self._mark = re.compile("|".join(parts))
        quotes = (*self.long_strings, *self.strings)
        inside = r"(?:\\.|[^\\])" if self.escapes else "."
        self._ends = {q: re.compile(rf"{inside}*?{re.escape(q)}", re.DOTALL) for q in quotes}
        self._memory: dict[tuple[str, str], tuple[str, str]] = {}
        self._plain_lines: dict[str, str] = {}  # lines that begin and end outside strings and comments
        self._plain = not marks and not self.line
        long = "|".join(map(re.escape, (*self.blocks, *self.long_strings)))
        worth = [p for p in (self.line, long, r"\\$" if self.strings and self.escapes else "") if p]
        self._worth = re.compile("|".join(worth)) if worth else None

    def strip(self, lines: list[str]) -> list[str]:
        """The lines without comments and trailing blanks; a line may become empty."""
        if self._plain or self._worth is None:
            return [line.rstrip(_BLANKS) for line in lines]
        out = []
        state = ""  # the mark that ends the open string or comment
        plain, memory, worth = self._plain_lines, self._memory, self._worth.search
        for line in lines:
            if not state:
                code = plain.get(line)
                if code is not None:
                    out.append(code)
                    continue
            known = memory.get((state, line))
            if known is None:
                if len(memory) + len(plain) >= _REMEMBERED:
                    memory.clear()
                    plain.clear()
                if not state and not worth(line):
                    known = (line.rstrip(_BLANKS), "")
                else:
                    known = memory[state, line] = self._strip_line(line, state)
                if not state and not known[1]:
                    plain[line] = known[0]
            out.append(known[0])
            state = known[1]
        return out

    def _strip_line(self, line: str, state: str) -> tuple[str, str]:
        """Code of one line and the state after it, from the state before it."""
        kept: list[str] = []
        at = 0
        while True:
            if state:
                begin, (at, state, comment) = at, self._close(line, at, state)
                if not comment:
                    kept.append(line[begin:at])
                if state:
                    break
            mark = self._mark.search(line, at)
            if mark is None:
                kept.append(line[at:])
                break
            kept.append(line[at : mark.start()])
            opened = mark.group("open")
            if opened is None:  # a comment up to the end of the line
                break
            if opened in self.blocks:
                at, state = mark.end(), self.blocks[opened]
                continue
            kept.append(line[mark.start() : mark.end()])
            at = mark.end()
            if self.nested and len(opened) == 1 and set(mark.group("f") or "") & set("fFtT"):
                end = _format_string_end(line, at, opened)
                if end is not None:
                    kept.append(line[at:end])
                    at = end
                    continue
            state = opened
        return "".join(kept).rstrip(_BLANKS), state

    def _close(self, line: str, at: int, state: str) -> tuple[int, str, bool]:
        """Where the open string or comment ends: position, state there, and whether it was a comment."""
        if state not in self._ends:
            end = line.find(state, at)
            return (len(line), state, True) if end < 0 else (end + len(state), "", True)
        match = self._ends[state].match(line, at)
        if match:
            return match.end(), "", False
        if state in self.long_strings:
            return len(line), state, False
        open_next = self.escapes and (len(line) - len(line.rstrip("\\"))) % 2 == 1  # "\" before the line end
        return len(line), state if open_next else "", False


def _format_string_end(line: str, at: int, quote: str) -> int | None:
    """Position after the f-string whose text begins at `at`, or None where it does not end on the line.

    Since Python 3.12 the expressions in braces may hold the same quotes: f"{d["#"]}".
    """
    depth = 0
    while at < len(line):
        char = line[at]
        if char == "\\":
            at += 2
            continue
        if depth == 0:
            if char == quote:
                return at + 1
            if line.startswith("{{", at):
                at += 2
                continue
            depth += char == "{"
        elif char in "\"'":
            end = _format_string_end(line, at + 1, char)
            if end is None:
                return None
            at = end
            continue
        else:
            depth += (char == "{") - (char == "}")
        at += 1
    return None


_PYTHON = Syntax(line="#", long_strings=('"""', "'''"), nested=True)
_HASH = Syntax(line="#")
_HASH_WORD = Syntax(line=r"(?:(?<=\s)|^)#")  # shell, YAML: only where a word begins
_C = Syntax(line="//", blocks={"/*": "*/"})
_RUST = Syntax(line="//", blocks={"/*": "*/"}, strings=(), long_strings=('"',))  # ' also marks lifetimes
_SCRIPT = Syntax(line="//", blocks={"/*": "*/"}, long_strings=("`",))
_SQL = Syntax(line="--", blocks={"/*": "*/"}, strings=(), long_strings=("'", '"'), escapes=False)
_LUA = Syntax(line=r"--(?!\[\[)", blocks={"--[[": "]]"})
_CSS = Syntax(blocks={"/*": "*/"})
_MARKUP = Syntax(blocks={"<!--": "-->"}, strings=())
_NONE = Syntax(strings=())

_EXTENSIONS = {
    **dict.fromkeys(("py", "pyi", "pyx"), _PYTHON),
    **dict.fromkeys(("rb", "toml", "r", "jl", "ex", "exs"), _HASH),
    **dict.fromkeys(("sh", "bash", "zsh", "yaml", "yml", "mk", "cfg"), _HASH_WORD),
    **dict.fromkeys(("c", "h", "cc", "cpp", "cxx", "hpp", "hh", "java", "cs", "kt", "swift", "scala", "php"), _C),
    **dict.fromkeys(("js", "jsx", "mjs", "cjs", "ts", "tsx", "go"), _SCRIPT),
    "rs": _RUST,
    "sql": _SQL,
    **dict.fromkeys(("lua", "hs"), _LUA),
    **dict.fromkeys(("css", "scss", "less"), _CSS),
    **dict.fromkeys(("html", "htm", "xml", "svg", "vue"), _MARKUP),
}


@cache
def syntax_of(path: str) -> Syntax:
    """The syntax for a file's extension; one without comments where it is unknown."""
    name = path.rsplit("/", 1)[-1]
    extension = name.rsplit(".", 1)[-1].lower() if "." in name else name.lower()
    return _EXTENSIONS.get(extension, _NONE)
