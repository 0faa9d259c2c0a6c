"""LiveCodeBench (code_generation, code_generation_lite): standard input and functional problems, dated.

Private tests are JSON text, or base64 of zlib of a pickle of JSON text. The pickle is read by an unpickler that knows
no class and no function, so that a file cannot run code.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from typing import Any, NoReturn

from didpo.tasks.apps import PRELUDE
from didpo.tasks.function_tests import HARNESS, PATH, harness, leetcode_stub
from didpo.tasks.reading import PROGRAM_STUB, Row, Unusable, json_field, need, stdio_tests
from didpo.types import CallTest, Files, Task, Test

MAX_TEXT = 1 << 30  # bytes of one problem's tests: more is not a test but a bomb


class _NoGlobals(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"the data asks for {module_name}.{global_name}")


def decode_private(text: str) -> list[dict[str, Any]]:
    """The private test cases of a row. Raises Unusable for what is neither JSON nor the known encoding."""
    if not text.strip():
        return []
    try:
        return _case_list(json.loads(text))
    except json.JSONDecodeError:
        pass
    try:
        unzip = zlib.decompressobj()
        data = unzip.decompress(base64.b64decode(text, validate=True), MAX_TEXT)
        if unzip.unconsumed_tail:
            raise Unusable("private tests are too large")
        value = _NoGlobals(io.BytesIO(data)).load()
        return _case_list(json.loads(value) if isinstance(value, str) else value)
    except (binascii.Error, zlib.error, ValueError, EOFError, IndexError, KeyError, TypeError, AttributeError):
        raise Unusable("private tests cannot be decoded") from None
    except pickle.UnpicklingError:
        raise Unusable("private tests hold a pickle that is not plain text") from None


def _case_list(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(case, dict) for case in value):
        raise Unusable("private tests are not a list of cases")
    return value


def livecodebench(row: Row) -> Task:
    """A row of LiveCodeBench: the public tests are visible, the private ones hidden."""
    question_id, question = need(row, "question_id", "question_content")
    public = json_field(row, "public_test_cases", [])
    private = row.get("private_test_cases") or []
    private = decode_private(private) if isinstance(private, str) else private
    function = str((json_field(row, "metadata", {}) or {}).get("func_name") or "")
    functional = any(case.get("testtype") == "functional" for case in [*public, *private])
    if functional and not function:
        raise Unusable("functional tests without metadata.func_name")
    starter = row.get("starter_code") or ""
    files: Files
    visible: tuple[Test, ...]
    hidden: tuple[Test, ...]
    if functional:
        files = {PATH: leetcode_stub(starter), HARNESS: harness(PRELUDE, function)}
        visible, hidden = (_calls(c, function, p) for c, p in ((public, "public"), (private, "private")))
        told = f"Write the class in {PATH}.\n\n{starter.rstrip()}\n"
    else:
        files = {PATH: PROGRAM_STUB}
        visible, hidden = (
            stdio_tests(((c["input"], c["output"]) for c in cases), prefix=prefix)
            for cases, prefix in ((public, "public"), (private, "private"))
        )
        told = f"Write the program {PATH}: it reads standard input and prints the answer.\n"
    if not (*visible, *hidden):
        raise Unusable("no tests")
    return Task(
        task_id=f"lcb/{question_id}",
        prompt=f"{question.strip()}\n\n{told}",
        files=files,
        visible_tests=visible,
        hidden_tests=hidden,
        difficulty=str(row.get("difficulty") or ""),
        meta={
            "benchmark": "livecodebench",
            "question": question,
            "entry_point": function,
            "platform": row.get("platform") or "",
            "contest_date": str(row.get("contest_date") or ""),
        },
    )


def _calls(cases: list[dict[str, Any]], function: str, prefix: str) -> tuple[CallTest, ...]:
    """Functional cases: one JSON value per line of the input, the expected value in JSON."""
    try:
        return tuple(
            CallTest(
                name=f"{prefix}/{i}",
                path=HARNESS,
                function=function,
                args=tuple(json.loads(line) for line in case["input"].split("\n") if line.strip()),
                expected=json.loads(case["output"]),
            )
            for i, case in enumerate(cases)
        )
    except json.JSONDecodeError:
        raise Unusable("a functional case is not one JSON value per line") from None
