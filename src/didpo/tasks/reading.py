"""Reading benchmark files: JSON Lines, JSON, their gzipped forms and parquet, with errors that say what to mend.

Nothing here executes what a file holds: no pickle, no loading scripts.
"""

from __future__ import annotations

import ast
import gzip
import json
import re
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from didpo.errors import UserError
from didpo.types import StdioTest

Row = Mapping[str, Any]
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".parquet")
PROGRAM_STUB = 'raise NotImplementedError("read standard input, print the answer")\n'


class Unusable(Exception):
    """A record that cannot become a task; its text is the reason that the report counts."""


@dataclass(kw_only=True)
class LoadReport:
    """What became of the records: `rows` read, `tasks` made, the others in `skipped` by reason (reason -> count)."""

    benchmark: str
    files: list[str] = field(default_factory=list)
    rows: int = 0
    tasks: int = 0
    skipped: dict[str, int] = field(default_factory=dict)

    def skip(self, reason: str) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + 1

    def __str__(self) -> str:
        left = "".join(f"; {count} left out: {reason}" for reason, count in sorted(self.skipped.items()))
        return f"{self.benchmark}: {self.tasks} tasks of {self.rows} records{left}"


# ---------------------------------------------------------------- files


def find_files(place: Path, folder: str, patterns: Sequence[str], *, missing: str) -> list[Path]:
    """The files of a set: `place` itself if it is a file, else the matches of the first pattern that has any, in
    `place` or in its sub-folder `folder`. Raises UserError with the text `missing` where there are none."""
    if place.is_file():
        return [place]
    for pattern in patterns:
        for root in (place / folder, place):
            found = sorted(p for p in root.glob(pattern) if p.is_file() and not p.name.startswith("."))
            if found:
                return found
    raise UserError(missing)


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file, as dicts. A JSON file is an array of objects, or one object of objects (the key is then
    kept as `_key`). Raises UserError for what is not readable."""
    if path.name.endswith(".parquet"):
        yield from _parquet(path)
    elif path.name.endswith((".jsonl", ".jsonl.gz")):
        yield from _json_lines(path)
    elif path.name.endswith((".json", ".json.gz")):
        yield from _json(path)
    else:
        raise UserError(f"{path}: unknown kind of file; use one of {', '.join(SUFFIXES)}")


def read_text(path: Path) -> str:
    """The text of a plain or gzipped file (UTF-8). Raises UserError."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}); download it again") from None


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    text = read_text(path)
    if text.lstrip().startswith("["):  # an array under the name of JSON Lines is common in copies of sets
        yield from _objects(path, _decode(path, text, 1))
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield from _objects(path, [_decode(path, line, number)])


def _json(path: Path) -> Iterator[dict[str, Any]]:
    text = read_text(path)
    if "\n" in text.strip() and re.match(r"\s*\{.*\}\s*\n\s*\{", text[: text.find("\n", 1) + 4] if text else ""):
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                yield from _objects(path, [_decode(path, line, number)])
        return
    value = _decode(path, text, 1)
    if isinstance(value, dict) and value and all(isinstance(v, dict) for v in value.values()):
        value = [{"_key": key, **row} for key, row in value.items()]
    yield from _objects(path, value if isinstance(value, list) else [value])


def _decode(path: Path, text: str, line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{line + error.lineno - 1}: not JSON ({error.msg}); download the file again") from None


def _objects(path: Path, values: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for value in values:
        if not isinstance(value, dict):
            raise UserError(f"{path}: a record is {type(value).__name__}, not an object with named fields")
        yield value


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow.parquet as parquet
    except ModuleNotFoundError:
        raise UserError(f"{path}: reading parquet needs pyarrow; pip install pyarrow") from None
    import pyarrow

    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256):
                yield from batch.to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"{path}: not a parquet file ({error}); download it again") from None


def read_hub(dataset: str, split: str) -> Iterator[dict[str, Any]]:
    """The rows of a set on the Hugging Face hub, through the `datasets` library; its remote code is never run."""
    try:
        import datasets
    except ModuleNotFoundError:
        raise UserError("reading from the hub needs the datasets library; pip install 'didpo[hub]'") from None
    for row in datasets.load_dataset(dataset, split=split, streaming=True):
        yield dict(row)


# ---------------------------------------------------------------- fields


def need(row: Row, *names: str) -> list[Any]:
    """The values of fields that every record of a set has. Raises Unusable naming the one that is missing."""
    for name in names:
        if name not in row or row[name] is None:
            raise Unusable(f"no field {name!r}")
    return [row[name] for name in names]


def json_field(row: Row, name: str, default: Any = None) -> Any:
    """A field that holds JSON as text, or the value itself; empty text gives `default`. Raises Unusable."""
    value = row.get(name)
    if not isinstance(value, str):
        return default if value is None else value
    if not value.strip():
        return default
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        raise Unusable(f"field {name!r} is not JSON") from None


def as_text(value: Any) -> str:
    """Input or output of a program: text, or a list of lines."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return "\n".join(as_text(line) for line in value)
    return str(value)


def parse(code: str) -> ast.Module:
    """The syntax tree of published code, without the warnings of its string escapes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code)


def compiles(code: str) -> bool:
    """True where the text is Python 3 (older sets hold Python 2 programs)."""
    try:
        parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def stdio_tests(
    cases: Iterable[tuple[Any, Any]], *, prefix: str = "case", checker: str | None = None
) -> tuple[StdioTest, ...]:
    """One test for each (input, output) pair. A pair without any output cannot tell right from wrong: it is left out,
    unless a checker decides."""
    texts = [(as_text(stdin), as_text(expected)) for stdin, expected in cases]
    return tuple(
        StdioTest(name=f"{prefix}/{i}", path="solution.py", stdin=stdin, expected=expected, checker=checker)
        for i, (stdin, expected) in enumerate(texts)
        if expected.strip() or checker
    )


SEVERAL = re.compile(
    r"(print|output|return|find|choose|provide|report)\s+(out\s+)?any\b(?!\s+(two|number|other))"
    r"|any\s+(of\s+them|valid|correct|one\s+of\s+them|such|possible\s+answer|solution|answer)"
    r"|(multiple|several|many|more\s+than\s+one)\s+((possible|correct|valid|optimal|such|different)\s+)*"
    r"(answers?|solutions?|ways?|outputs?|arrays?|strings?|sequences?|permutations?)\s*"
    r"(exists?|are\s+(possible|allowed|accepted)|is\s+accepted|,)"
    r"|in\s+any\s+order|will\s+be\s+accepted",
    re.IGNORECASE,
)


def several_answers(question: str) -> bool:
    """True where the statement says that more than one output is right: comparing with one of them is not enough."""
    return SEVERAL.search(question) is not None


def shown_first(question: str, tests: Sequence[StdioTest]) -> tuple[tuple[StdioTest, ...], tuple[StdioTest, ...]]:
    """Tests split into (printed in the statement, not printed there); all are hidden where all would be shown."""
    words = " ".join(question.split())
    shown = tuple(t for t in tests if t.stdin.strip() and f" {' '.join(t.stdin.split())} " in f" {words} ")
    if len(shown) == len(tests):
        return (), tuple(tests)
    return shown, tuple(t for t in tests if t not in shown)
