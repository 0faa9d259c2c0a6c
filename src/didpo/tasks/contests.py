"""Contest problems judged on standard input and output: Codeforces and CodeContests rows, USACO, OJBench, ICPC-Eval."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from didpo.errors import UserError
from didpo.tasks.reading import (
    PROGRAM_STUB,
    Row,
    Unusable,
    compiles,
    json_field,
    need,
    shown_first,
    stdio_tests,
)
from didpo.types import StdioTest, Task

PATH = "solution.py"
PYTHON3 = 3  # CodeContests' number for the language
LEVELS = ("bronze", "silver", "gold", "platinum")


def program_task(
    task_id: str,
    question: str,
    tests: Sequence[StdioTest],
    *,
    visible: Sequence[StdioTest] | None = None,
    difficulty: str = "",
    solution: str | None = None,
    meta: Mapping[str, Any],
) -> Task:
    """A task for a whole program. Where `visible` is None, the tests printed in the statement are the visible ones."""
    if not tests and not visible:
        raise Unusable("no tests")
    shown, hidden = shown_first(question, tests) if visible is None else (tuple(visible), tuple(tests))
    return Task(
        task_id=task_id,
        prompt=f"{question.strip()}\n\nWrite the program {PATH}: it reads standard input and prints the answer.\n",
        files={PATH: PROGRAM_STUB},
        visible_tests=shown,
        hidden_tests=hidden,
        difficulty=difficulty,
        reference={PATH: solution} if solution and compiles(solution) else None,
        meta={**meta, "question": question},
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---------------------------------------------------------------- Codeforces, CodeContests


def codeforces(row: Row) -> Task:
    """Rows {problem, tests: [{input, output}]} or {problem, tests: {inputs, outputs}}, or the fields of the hub's sets:
    `description`, `examples`, `official_tests`."""
    question = row.get("problem") or row.get("description")
    if not question:
        raise Unusable("no field 'problem' or 'description'")
    if row.get("official_tests") is not None or row.get("examples") is not None:
        shown = stdio_tests(_pairs(row.get("examples") or []), prefix="example")
        tests = stdio_tests(_pairs(row.get("official_tests") or []))
        question = "\n\n".join(str(row[k]) for k in ("description", "input_format", "output_format") if row.get(k))
        return program_task(
            f"codeforces/{row.get('id') or _digest(question)}",
            question,
            tests,
            visible=shown,
            difficulty=str(row.get("rating") or ""),
            meta={"benchmark": "codeforces", **_limits(row.get("time_limit"), row.get("memory_limit"))},
        )
    tests = stdio_tests(_pairs(json_field(row, "tests", [])))
    seconds = re.search(r"Time Limit:\s*(\d+)\s*ms", question)
    memory = re.search(r"Memory Limit:\s*(\d+)\s*MB", question)
    return program_task(
        f"codeforces/{row.get('id') or _digest(question)}",
        question,
        tests,
        meta={
            "benchmark": "codeforces",
            **_limits(int(seconds[1]) / 1000 if seconds else None, int(memory[1]) if memory else None),
        },
    )


def code_contests(row: Row) -> Task:
    """Rows {problem, tests}, or those of the published set: `description`, `public_tests`, `private_tests`,
    `generated_tests` (each {input, output} lists), `solutions` {language, solution}."""
    if "description" not in row:
        task = codeforces(row)
        name = task.task_id.partition("/")[2]
        return _replaced(task, f"code_contests/{name}", "code_contests")
    question = row["description"]
    groups = {k: stdio_tests(_pairs(row.get(f"{k}_tests") or {}), prefix=k) for k in ("public", "private", "generated")}
    written = row.get("solutions") or {}
    programs = zip(written.get("language") or [], written.get("solution") or [], strict=False)
    limit = row.get("time_limit") or {}
    seconds = limit.get("seconds", 0) + limit.get("nanos", 0) / 1e9 if isinstance(limit, Mapping) else None
    memory = row.get("memory_limit_bytes")
    return program_task(
        f"code_contests/{row.get('name') or _digest(question)}",
        question,
        groups["private"] + groups["generated"],
        visible=groups["public"],
        difficulty=str(row.get("difficulty") or ""),
        solution=next((text for language, text in programs if language == PYTHON3 and compiles(text)), None),
        meta={"benchmark": "code_contests", **_limits(seconds, memory / 1e6 if memory else None)},
    )


def _replaced(task: Task, task_id: str, benchmark: str) -> Task:
    return replace(task, task_id=task_id, meta={**task.meta, "benchmark": benchmark})


def _pairs(tests: Any) -> list[tuple[Any, Any]]:
    """(input, output) pairs of either layout; CodeContests' own lists are named in the singular."""
    if isinstance(tests, Mapping):
        inputs = tests.get("inputs", tests.get("input")) or []
        outputs = tests.get("outputs", tests.get("output")) or []
        if len(inputs) != len(outputs):
            raise Unusable("inputs and outputs differ in number")
        return list(zip(inputs, outputs, strict=True))
    if not all(isinstance(t, Mapping) and "input" in t and "output" in t for t in tests):
        raise Unusable("a test lacks 'input' or 'output'")
    return [(t["input"], t["output"]) for t in tests]


def _limits(seconds: Any, memory_mb: Any) -> dict[str, float]:
    """The problem's own limits, as stated (for compiled languages): kept for reports, not enforced on Python."""
    found = {"time_limit_s": seconds, "memory_limit_mb": memory_mb}
    return {name: float(value) for name, value in found.items() if value}


# ---------------------------------------------------------------- USACO


def usaco(row: Row, base: Path) -> Task:
    """USACO rows: `input` and `output` are objects keyed by case number, or the cases lie in the folder
    tests/<cp_id>/ beside the file, as I.1 and O.1, or 1.in and 1.out. Older problems name files instead of standard
    input; their cases are given on standard input all the same, as the set's own prompts ask."""
    question = row.get("description") or row.get("question")
    if not question:
        raise Unusable("no field 'description'")
    name = str(row.get("problem_id") or row.get("cp_id") or row.get("_key") or "")
    if not name:
        raise Unusable("no field 'problem_id' or 'cp_id'")
    if isinstance(row.get("input"), Mapping) and isinstance(row.get("output"), Mapping):
        cases = _numbered(row["input"], row["output"])
    else:
        cases = _usaco_files(base, str(row.get("cp_id") or name))
    level = str(row.get("problem_level") or row.get("level") or "").lower()
    if level not in LEVELS:
        level = next((word for word in LEVELS if word in name), "")
    solution = row.get("solution_python3")
    return program_task(
        f"usaco/{name}",
        question,
        stdio_tests(cases),
        difficulty=level,
        solution=solution if isinstance(solution, str) else None,
        meta={
            "benchmark": "usaco",
            **_limits(row.get("runtime_limit"), row.get("memory_limit")),
        },
    )


def _numbered(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    if inputs.keys() != outputs.keys():
        raise Unusable("inputs and outputs are numbered differently")
    keys = sorted(inputs, key=lambda k: (len(str(k)), str(k)))
    return [(inputs[k], outputs[k]) for k in keys]


def _usaco_files(base: Path, cp_id: str) -> list[tuple[str, str]]:
    folder = base / "tests" / cp_id
    pairs = []
    for path in sorted(folder.glob("*"), key=lambda p: (len(p.name), p.name)):
        if path.name.startswith("I."):
            answer = folder / f"O.{path.name[2:]}"
        elif path.suffix == ".in":
            answer = path.with_suffix(".out")
        else:
            continue
        if answer.is_file():
            pairs.append((_plain(path.read_bytes()), _plain(answer.read_bytes())))
    if not pairs:
        raise Unusable(f"no cases: neither input and output in the record nor files in tests/{cp_id or '<cp_id>'}")
    return pairs


# ---------------------------------------------------------------- OJBench

_OJ_COMPARE = {
    "": "tokens",
    "standard": "tokens",
    "floats": "tokens",
    "floatsabs": "tokens",
    "floatsrel": "tokens",
    "identical": "exact",
    "unordered": "unordered",
    "sorted": "unordered",
}


def ojbench(row: Row, base: Path) -> Task:
    """OJBench: `prompts/full.jsonl`; the cases of problem N lie in NOI/N or ICPC/N beside the folder prompts, as
    init.yml and the archive that it names."""
    number, question = need(row, "id", "prompt")
    if str(row.get("language") or "python").lower() != "python":
        raise Unusable("the prompt asks for another language than Python")
    dataset = str(row.get("dataset") or "NOI").upper()
    root = base.parent if base.name == "prompts" else base
    names = (f"{number}", f"{dataset.lower()}-{number}", f"loj-{number}")
    folder = next((root / dataset / n for n in names if (root / dataset / n / "init.yml").is_file()), None)
    if folder is None:
        raise Unusable(f"no {dataset}/<id>/init.yml beside the prompts")
    config = _yaml(folder / "init.yml")
    return program_task(
        f"ojbench/{number}",
        question,
        _oj_tests(folder, config),
        visible=(),
        difficulty=str(row.get("difficulty") or "").lower(),
        meta={"benchmark": "ojbench", "dataset": dataset},
    )


def _yaml(path: Path) -> Mapping[str, Any]:
    try:
        import yaml
    except ModuleNotFoundError:
        raise UserError("OJBench needs the yaml library; pip install pyyaml") from None
    value = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(value, Mapping):
        raise Unusable("init.yml is not a mapping")
    return value


def _oj_tests(folder: Path, config: Mapping[str, Any]) -> tuple[StdioTest, ...]:
    """The cases of an init.yml: single ones and batches. A checker written in Python goes along; one in another
    language cannot be run here."""
    checker = config.get("checker") or ""
    name = checker if isinstance(checker, str) else str(checker.get("name") or "")
    program = None
    if name.endswith(".py"):
        program = (folder / name).read_text(encoding="utf-8")
    elif name not in _OJ_COMPARE:
        raise Unusable(f"needs the checker {name!r}, which is not a Python program")
    compare: Any = "tokens" if program else _OJ_COMPARE[name]
    archive = folder / str(config.get("archive") or "tests.zip")
    if not archive.is_file():
        raise Unusable("the archive of its tests is missing")
    with zipfile.ZipFile(io.BytesIO(archive.read_bytes())) as files:
        cases = [
            (_plain(files.read(case["in"])), _plain(files.read(case["out"])))
            for case in _flat_cases(config.get("test_cases") or [])
        ]
    return tuple(
        StdioTest(name=f"case/{i}", path=PATH, stdin=a, expected=b, compare=compare, checker=program)
        for i, (a, b) in enumerate(cases)
        if b.strip() or program
    )


def _flat_cases(cases: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    flat: list[Mapping[str, Any]] = []
    for case in cases:
        flat += _flat_cases(case["batched"]) if "batched" in case else [case] if "in" in case and "out" in case else []
    return flat


def _plain(data: bytes) -> str:
    return data.decode("utf-8", errors="replace").replace("\r\n", "\n")


# ---------------------------------------------------------------- ICPC-Eval


def icpc_eval(row: Row) -> Task:
    """ICPC-Eval: `input` and `output` describe the formats in words; `examples` and `test_cases` are pairs (lists of
    two, or objects). `spj_code` is a checker: a Python one goes along, another language leaves the problem out."""
    parts = [str(row[k]) for k in ("title", "description", "input", "output", "note") if row.get(k)]
    if not row.get("description") or not row.get("test_cases"):
        raise Unusable("no tests" if row.get("description") else "no field 'description'")
    checker = row.get("spj_code") or None
    if checker and not compiles(checker):
        raise Unusable("needs a checker, which is not a Python program")
    question = "\n\n".join(parts)
    return program_task(
        f"icpc/{row.get('id') or row.get('problem_id') or _digest(question)}",
        question,
        stdio_tests(_two(json_field(row, "test_cases", [])), checker=checker),
        visible=stdio_tests(_two(json_field(row, "examples", [])), prefix="example", checker=checker),
        difficulty=str(row.get("difficulty") or ""),
        meta={"benchmark": "icpc_eval", **_limits(row.get("time_limit_s"), row.get("memory_limit_mb"))},
    )


def _two(cases: Sequence[Any]) -> list[tuple[Any, Any]]:
    if all(isinstance(c, (list, tuple)) and len(c) == 2 for c in cases):
        return [(c[0], c[1]) for c in cases]
    return _pairs(cases)
