"""Verdicts on programs that mean no harm; cases C24 and C25; both modes agree."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from didpo.errors import UserError
from didpo.sandbox import Limits, Sandbox, Verdict, open_sandbox
from didpo.types import AssertTest, CallTest, StdioTest

BUFFERED = """import sys
rd = sys.stdin.buffer
n = int(rd.readline())
nums = rd.readline().split()
rest = rd.read().split()
sys.stdout.buffer.write(str(n + sum(map(int, nums)) + len(rest)).encode() + b"\\n")
"""


def stdio(source: str, stdin: str, expected: str, **kw: object) -> tuple[dict[str, str], list[StdioTest]]:
    return {"p.py": source}, [StdioTest(name="t", path="p.py", stdin=stdin, expected=expected, **kw)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "stdin", "expected"),
    [
        (BUFFERED, "3\n1 2 3\na b\n", "11"),
        ("print(open(0).read().split()[1])", "1 2\n", "2"),
        ("import os\nprint(os.read(0, 3).decode())", "abc", "abc"),
        ("import sys\nn = input()\nprint(n, sys.stdin.buffer.read())", "1\nab", "1 b''"),  # text layers read ahead
        ("if __name__ == '__main__':\n    print(input())", "x\n", "x"),
        ("print(0.333333)", "", "0.333333333333"),
        ("print('1 2 \\n3\\n')", "", "1 2\n3"),
        ("def f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\nprint(f(20000))", "", "20000"),
        ("print(len(str(7 ** 10000)))", "", "8451"),
        ("import sys\nprint('a')\nsys.exit(0)", "", "a"),
        ("import os\nprint('a', flush=True)\nos._exit(0)", "", "a"),
        ("import os\nos.write(1, b'a\\n')", "", "a"),
        ("import atexit\natexit.register(lambda: print('bye'))\nprint('hi')", "", "hi bye"),
        (
            "import threading\nthreading.stack_size(64 << 20)\n"
            "t = threading.Thread(target=lambda: print(input()))\nt.start()",
            "q",
            "q",
        ),
        ("from other import x\nprint(x)", "", "5"),
        ("print('\\u00e9')", "", "é"),
        ("print(len(open(__file__).read()))", "", "33"),
    ],
)
@pytest.mark.parametrize("mode", ["batch", "fork"])
def test_programs_are_read_like_a_judge_reads_them(
    sandbox: Sandbox, source: str, stdin: str, expected: str, mode: str
) -> None:
    files, tests = stdio(source, stdin, expected)
    result = sandbox.grade({**files, "other.py": "x = 5\n"}, tests, mode=mode)["t"]  # type: ignore[arg-type]
    assert result.verdict is Verdict.PASSED, result


@pytest.mark.parametrize(
    ("source", "verdict", "word"),
    [
        ("print(0.34)", Verdict.WRONG_ANSWER, "0.34"),
        ("input()", Verdict.RUNTIME_ERROR, "EOFError"),
        ("1 / 0", Verdict.RUNTIME_ERROR, "ZeroDivisionError: division by zero (p.py:1)"),
        ("def f(:", Verdict.RUNTIME_ERROR, "SyntaxError"),
        ("import sys\nprint('1/3')\nsys.exit(3)", Verdict.RUNTIME_ERROR, "exit status 3"),
        ("x = bytearray(4 << 30)", Verdict.MEMORY, "MemoryError"),
        ("print('x' * (200 << 20))", Verdict.OUTPUT_LIMIT, "cut off"),
        ("for _ in range(200):\n    print('x' * (1 << 20))", Verdict.OUTPUT_LIMIT, "cut off"),
        ("while True: pass", Verdict.TIMEOUT, "CPU"),
        ("import os\nos.abort()", Verdict.RUNTIME_ERROR, "killed by"),
    ],
)
def test_verdicts(sandbox: Sandbox, source: str, verdict: Verdict, word: str) -> None:
    files, tests = stdio(source, "", "0.333333333333")
    result = sandbox.grade(files, tests, limits=Limits(cpu_s=0.7, memory_mb=512))["t"]
    assert result.verdict is verdict, result
    assert word in result.detail


def test_sleep_is_bounded_by_the_wall_cap(sandbox: Sandbox) -> None:
    files, tests = stdio("import time\ntime.sleep(60)", "", "")
    result = sandbox.grade(files, tests, limits=Limits(cpu_s=1, wall_s=0.5))["t"]
    assert (result.verdict, result.detail) == (Verdict.TIMEOUT, "over 0.5 s elapsed")


CALLS = """
def add(a, b):
    return a + b
class Solution:
    def twice(self, x):
        return (x, x)
def loop():
    while True: pass
def boom(x):
    return [][x]
seen = []
def remember(x):
    seen.append(x)
    return len(seen)
def thing():
    return object()
class Equal:
    def __eq__(self, other): return True
def equal(): return Equal()
"""


@pytest.mark.parametrize("mode", ["batch", "fork"])
def test_calls(sandbox: Sandbox, mode: str) -> None:
    rows = [
        ("add", (1, 2), 3, Verdict.PASSED, ""),
        ("add", ([1], [2]), (1, 2), Verdict.PASSED, ""),
        ("add", (1, 2), 4, Verdict.WRONG_ANSWER, "add(1, 2) returned 3, expected 4"),
        ("Solution.twice", ({1: "a"},), [{1: "a"}, {1: "a"}], Verdict.PASSED, ""),
        ("boom", (3,), None, Verdict.RUNTIME_ERROR, "IndexError: list index out of range (s.py:10)"),
        ("loop", (), None, Verdict.TIMEOUT, "over 0.5 s of CPU time"),
        ("remember", (1,), 1, Verdict.PASSED, ""),
        ("remember", (1,), 1, Verdict.PASSED, ""),  # a fresh module for each case
        ("thing", (), None, Verdict.WRONG_ANSWER, "returned a value of type object"),
        ("equal", (), 1, Verdict.WRONG_ANSWER, "returned a value of type Equal"),
        ("missing", (), 1, Verdict.RUNTIME_ERROR, "AttributeError: module 's' has no attribute 'missing'"),
        ("add", (10**50, 1), 10**50 + 1, Verdict.PASSED, ""),
    ]
    tests = [
        CallTest(name=str(i), path="s.py", function=f, args=args, expected=expected)
        for i, (f, args, expected, _, _) in enumerate(rows)
    ]
    results = sandbox.grade({"s.py": CALLS}, tests, mode=mode, limits=Limits(cpu_s=0.5))  # type: ignore[arg-type]
    got = [(r.verdict, r.detail) for r in results.values()]
    assert got == [(verdict, detail) for *_, verdict, detail in rows]


def test_every_way_to_fail_in_the_middle_leaves_the_neighbours_alone(sandbox: Sandbox) -> None:
    """Batch mode: a case that ends the process is run again alone, and the others as if it were not there."""
    source = """
import os, sys, threading, time, builtins
def f(how):
    if how == "exit": os._exit(0)
    if how == "sys": sys.exit(0)
    if how == "close": os.closerange(0, 256)
    if how == "patch": builtins.len = lambda x: 7
    if how == "thread": threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    if how == "chdir": os.chdir("/")
    if how == "path": sys.path.clear()
    if how == "crash": os.abort()
    if how == "stdout": sys.stdout.close()
    return len("abc")
"""
    hows = [
        "",
        "exit",
        "",
        "sys",
        "",
        "close",
        "",
        "patch",
        "",
        "thread",
        "",
        "chdir",
        "",
        "path",
        "",
        "crash",
        "",
        "stdout",
        "",
    ]
    tests = [CallTest(name=f"{i}{h}", path="s.py", function="f", args=(h,), expected=3) for i, h in enumerate(hows)]
    results = sandbox.grade({"s.py": source}, tests)
    for how, result in zip(hows, results.values(), strict=True):
        if how == "":
            assert result.passed, result
        assert result.verdict is not Verdict.SANDBOX_ERROR


def test_modes_agree_on_a_program_that_fails_to_load(best: Sandbox) -> None:
    tests = [CallTest(name=str(i), path="s.py", function="f", args=(), expected=1) for i in range(30)]
    batch, fork = (best.grade({"s.py": "import nothing\n"}, tests, mode=m) for m in ("batch", "fork"))
    assert [(r.verdict, r.detail) for r in batch.values()] == [(r.verdict, r.detail) for r in fork.values()]
    assert batch["0"].detail == "ModuleNotFoundError: No module named 'nothing' (s.py:1)"


def test_numpy_results_and_thread_limits(best: Sandbox) -> None:
    pytest.importorskip("numpy")
    source = (
        "import numpy as np, os\n"
        "def f(n):\n    return np.arange(n) * 2\n"
        "def g():\n    return os.environ['OMP_NUM_THREADS']\n"
    )
    tests = [
        CallTest(name="a", path="s.py", function="f", args=(3,), expected=[0, 2, 4]),
        CallTest(name="b", path="s.py", function="g", args=(), expected="1"),
        AssertTest(
            name="c",
            path="s.py",
            code="import numpy as np\nassert (f(3) == np.array([0, 2, 4])).all() and f(3).dtype == np.arange(1).dtype",
        ),
    ]
    assert all(r.passed for r in best.grade({"s.py": source}, tests).values())


def test_checker_program(best: Sandbox) -> None:
    checker = "import sys\ni, e, o = (open(p).read() for p in sys.argv[1:])\nassert int(o) ** 2 >= int(i)\n"
    verdicts = []
    for shown in ("3", "1", "x"):
        files, tests = stdio(f"print('{shown}')", "5\n", "", checker=checker)
        verdicts.append(best.grade(files, tests)["t"].verdict)
    assert verdicts == [Verdict.PASSED, Verdict.WRONG_ANSWER, Verdict.WRONG_ANSWER]
    files, tests = stdio("print(3)", "5\n", "", checker="while True: pass")
    assert best.grade(files, tests, limits=Limits(cpu_s=0.3))["t"].verdict is Verdict.SANDBOX_ERROR


def test_one_bad_program_never_stops_the_others(sandbox: Sandbox) -> None:
    files, tests = stdio("print(int(input()) + 1)", "1", "2")
    loop = "while True:\n    try:\n        os.kill(os.getppid(), signal.SIGKILL)\n    except OSError: pass\n"
    bad = {"p.py": "import os, signal\n" + loop}
    results = sandbox.grade_many([(files, tests), (bad, tests), (files, tests)], limits=Limits(cpu_s=0.5))
    assert [r["t"].verdict for r in results] == [Verdict.PASSED, Verdict.TIMEOUT, Verdict.PASSED]


def test_grade_async(best: Sandbox) -> None:
    files, tests = stdio("print(int(input()) + 1)", "1", "2")

    async def both() -> list[dict[str, object]]:
        return await asyncio.gather(*(best.grade_async(files, tests) for _ in range(4)))  # type: ignore[arg-type]

    assert all(r["t"].passed for r in asyncio.run(both()))  # type: ignore[attr-defined]


def test_program_deadline_marks_what_did_not_run(best: Sandbox) -> None:
    tests = [CallTest(name=str(i), path="s.py", function="f", args=(), expected=1) for i in range(6)]
    limits = Limits(cpu_s=0.4, program_s=1.0)
    results = best.grade({"s.py": "def f():\n    while True: pass\n"}, tests, limits=limits)
    assert {r.verdict for r in results.values()} == {Verdict.TIMEOUT}
    assert results["5"].detail == "not run: the program's time was used up"


def test_a_worker_that_dies_is_replaced(best: Sandbox) -> None:
    files, tests = stdio("print(2)", "", "2")
    with open_sandbox(require="process", workers=1) as sandbox:
        assert sandbox.grade(files, tests)["t"].passed
        worker = sandbox._pool._slots.get()
        assert worker is not None
        os.kill(worker.process.pid, 9)
        worker.process.wait()
        sandbox._pool._slots.put(worker)
        assert sandbox.grade(files, tests)["t"].passed


@pytest.mark.parametrize(
    ("files", "tests", "word"),
    [
        ({"p.py": ""}, [], "no tests"),
        ({"p.py": ""}, [StdioTest(name="a", path="p.py", stdin="", expected="")] * 2, "two tests"),
        ({"../p.py": ""}, [StdioTest(name="a", path="p.py", stdin="", expected="")], "inside the workspace"),
        ({"/p.py": ""}, [StdioTest(name="a", path="p.py", stdin="", expected="")], "inside the workspace"),
        ({"p.py": ""}, [CallTest(name="a", path="p.py", function="f", args=(object(),))], "plain values"),
    ],
)
def test_mistakes_of_the_caller(best: Sandbox, files: dict[str, str], tests: list[object], word: str) -> None:
    with pytest.raises(UserError, match=word):
        best.grade(files, tests)  # type: ignore[arg-type]


def test_memory_of_the_grader_stays_flat_under_floods(best: Sandbox) -> None:
    import resource

    files, tests = stdio("import sys\nwhile True:\n    sys.stdout.write('x' * (1 << 20))", "", "")
    best.grade(files, tests)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.monotonic()
    assert best.grade(files, tests)["t"].verdict is Verdict.OUTPUT_LIMIT
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10
    assert time.monotonic() - start < 30
