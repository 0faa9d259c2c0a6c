"""Edits that a shell command makes: here-documents into a file, and `sed -i` where it is decidable what it writes."""

from __future__ import annotations

import re

from didpo.importers.common import Found, relative, span

HEREDOC = re.compile(r"<<(?P<dash>-?)[ \t]*(?P<quote>['\"]?)(?P<mark>[A-Za-z_]\w*)(?P=quote)[^\n]*\n")
TARGET = re.compile(r"(?P<append>>>?)[ \t]*(?P<path>\"[^\"\n]+\"|'[^'\n]+'|[^\s;&|<>'\"]+)")
TEE = re.compile(r"\btee(?P<append>[ \t]+-a)?[ \t]+(?P<path>\"[^\"\n]+\"|'[^'\n]+'|[^\s;&|<>'\"]+)")
SED = re.compile(
    r"(?:^|[;&|\n(]|\bthen\b|\bdo\b)[ \t]*sed[ \t]+(?P<rest>(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|[^;&|\n'\"])*)"
)
WORD = re.compile(r"'(?P<single>[^']*)'|\"(?P<double>(?:\\.|[^\"\\])*)\"|(?P<plain>[^\s'\"]+)")
SUBSTITUTE = re.compile(r"(?P<address>\d+(?:,(?:\d+|\$))?)?s(?P<mark>[/|#@,!])")
ADD_LINE = re.compile(r"(?P<line>\d+)(?:,\d+)?(?P<op>[aic])(?:[ \t]*\\\n?|[ \t]*)")
OTHER_WAYS = (
    (re.compile(r"\b(?:git[ \t]+apply|patch[ \t]+-)"), "a patch applied by a command"),
    (re.compile(r"\.write\(|\.write_text\(|writelines\("), "a script that writes a file"),
    (re.compile(r"\b(?:perl[ \t]+-\S*i|awk[ \t]+-i)"), "perl or awk in place"),
    (re.compile(r"\b(?:echo|printf)\b[^\n]*?(?<![0-9&>])>>?[ \t]*(?!/dev/|&)[^\s&|;]+"), "echo or printf into a file"),
)


def shell_edits(response: str, start: int, end: int, root: str = "") -> Found:
    """The edits of the shell command response[start:end]; `root` is the workspace folder that paths are relative to."""
    found = Found()
    command, rest = response[start:end], response[start:end]
    position = 0
    while match := HEREDOC.search(command, position):
        close = re.compile(rf"^{r'[ 	]*' if match['dash'] else ''}{re.escape(match['mark'])}[ \t]*$", re.MULTILINE)
        stop = close.search(command, match.end())
        body_end = stop.start() if stop else len(command)
        _heredoc(found, response, start, match, body_end, command, root)
        blank = " " * (body_end - match.end())  # bodies are data: nothing in them is a command
        rest = rest[: match.end()] + blank + rest[body_end:]
        position = stop.end() if stop else len(command)
    for sed in SED.finditer(rest):
        _sed(found, response, start + sed.start("rest"), sed["rest"], root)
    for pattern, reason in OTHER_WAYS:
        # a script in a here-document is looked at as a whole; one edit of that kind is counted per command
        if pattern.search(command if "script" in reason and not found.ways else rest):
            found.unrecognised[reason] += 1
    return found


def _heredoc(
    found: Found, response: str, base: int, match: re.Match[str], body_end: int, command: str, root: str
) -> None:
    line_start = command.rfind("\n", 0, match.start()) + 1
    line = command[line_start : match.end()]
    before = max(line.rfind(mark, 0, match.start() - line_start) for mark in ("&&", ";", "||")) + 1
    words = line[max(0, before) :]
    target = TEE.search(words) or (TARGET.search(HEREDOC.sub(" ", words)) if "cat" in words else None)
    if target is None:
        target = TARGET.search(words.replace("<<", "  ")) if re.search(r"\bcat\b", words) else None
    if target is None:
        return  # fed to a program, not to a file
    body = command[match.end() : body_end]
    if not match["quote"] and re.search(r"[$`\\]", body):
        found.unrecognised["a here-document in which the shell replaces parts"] += 1
        return
    if match["dash"] and re.search(r"^\t", body, re.MULTILINE):
        found.unrecognised["a here-document whose leading tabs are removed"] += 1
        return
    append = target["append"] in (">>",) or (target.re is TEE and target["append"] is not None)
    path = relative(target["path"], root)
    kind = "add" if append else "overwrite"
    found.add("here-document", span(response, base + match.end(), base + body_end, path, kind))


def _sed(found: Found, response: str, base: int, rest: str, root: str) -> None:
    words = list(WORD.finditer(rest))
    flags = [w[0] for w in words if w["plain"] and w[0].startswith("-")]
    if not any(re.fullmatch(r"-[a-zA-Z]*i\S*|--in-place\S*", f) for f in flags):
        return  # prints only
    free = [w for w in words if not (w["plain"] and w[0].startswith("-"))]
    if len(free) < 2 or flags.count("-e") > 1 or free[0]["plain"]:
        found.unrecognised["sed with several or unquoted scripts"] += 1
        return
    group = "single" if free[0]["single"] is not None else "double"
    script, at = free[0][group], base + free[0].start(group)
    paths = [relative(w[0], root) for w in free[1:]]
    if len(paths) > 1 or re.search(r"[*?$]", paths[0]):
        found.unrecognised["sed on several files"] += 1
    elif re.fullmatch(r"\d+(,(\d+|\$))?d", script):
        found.add("sed (lines deleted, no text written)")
    elif added := ADD_LINE.match(script):
        line = int(added["line"]) - (added["op"] != "a")
        _plain_text(found, response, at + added.end(), at + len(script), paths[0], line)
    elif match := SUBSTITUTE.match(script):
        _substitute(found, response, at, script, match, paths[0])
    else:
        found.unrecognised["sed with a script that is not followed"] += 1


def _plain_text(found: Found, response: str, start: int, end: int, path: str, line: int) -> None:
    if "\\" in response[start:end]:
        found.unrecognised["sed text with escapes"] += 1
    else:
        found.add("sed", span(response, start, end, path, "add", line))


def _substitute(found: Found, response: str, at: int, script: str, match: re.Match[str], path: str) -> None:
    """s/old/new/: `new` is an added text; `old` is a deleted text where it holds no pattern."""
    parts = script[match.end() :].split(match["mark"])
    if len(parts) != 3 or not re.fullmatch(r"[gI0-9]*", parts[2]) or re.search(r"[\\&]", parts[1]) or "\\" in parts[0]:
        found.unrecognised["sed with escapes, references or several commands"] += 1
        return
    old_at = at + match.end()
    new_at = old_at + len(parts[0]) + 1
    line = int(match["address"].split(",")[0]) - 1 if match["address"] else 0
    literal = not re.search(r"[*\[\]^$]", parts[0])
    old = span(response, old_at, new_at - 1, path, "del", line) if literal else None
    found.add("sed", old, span(response, new_at, new_at + len(parts[1]), path, "add", line))
