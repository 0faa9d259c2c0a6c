"""Ways to pass without a right answer. Each must fail; the honest program beside them passes."""

from __future__ import annotations

import pytest

from didpo.sandbox import Limits, Sandbox, Verdict
from didpo.types import AssertTest, CallTest, PytestTest

ASSERTS = [
    AssertTest(name="a", path="s.py", code="assert total([1, 2, 3]) == 6\nassert abs(total([0.5]) - 0.5) < 1e-6"),
    AssertTest(
        name="b", path="s.py", code="def check(f):\n    assert f([]) == 0\n    assert f([4]) in (4,)\ncheck(total)"
    ),
]
HONEST = "def total(xs):\n    return sum(xs)\n"
CHEATS = {
    "always equal object": """
class Yes:
    def __eq__(self, other): return True
    def __sub__(self, other): return 0
    def __abs__(self): return 0
    def __lt__(self, other): return True
    def __hash__(self): return 0
def total(xs): return Yes()
""",
    "always equal number": """
class Yes(float):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __sub__(self, other): return self
    def __abs__(self): return self
    def __lt__(self, other): return True
    def __hash__(self): return 0
def total(xs): return Yes(7)
""",
    "exit status 0 while loading": "import sys\nsys.exit(0)\n",
    "hard exit in the call": "import os\ndef total(xs): os._exit(0)\n",
    "hard exit while loading": "import os\nos._exit(0)\n",
    "printed markers": """
import sys
print('PASSED', 'OK', '{"status": "returned"}', flush=True)
sys.stderr.write('all tests passed')
def total(xs): return None
""",
    "own exit function": """
import atexit, os
atexit.register(lambda: os._exit(0))
def total(xs): raise SystemExit(0)
""",
    "patched builtins": """
import builtins
builtins.AssertionError = Exception
builtins.abs = lambda x: 0
builtins.__build_class__ = None
builtins.compile = builtins.exec = lambda *a, **k: None
def total(xs): return -1
""",
    "own names for what judges": """
abs = all = any = len = isinstance = lambda *a: 0
AssertionError = Exception
def total(xs): return -1
""",
    "results written by hand": """
import os
for fd in range(3, 64):
    try: os.write(fd, b'{"status": "returned", "cpu": 0, "value": 6}\\n' * 2)
    except OSError: pass
def total(xs): return -1
""",
    "answers on the connection": """
import gc, socket
def total(xs):
    for thing in gc.get_objects():
        if type(thing).__name__ == 'Peer':
            thing.send({"value": True})
            thing.send({"names": {"total": True}})
    return 0
""",
    "swallowed errors": """
import sys
sys.excepthook = lambda *a: None
def total(xs):
    frame = sys._getframe()
    while frame:
        frame.f_globals['__builtins__'] = {}
        frame = frame.f_back
    raise KeyboardInterrupt
""",
    "killing the judge": """
import os, signal
def total(xs):
    for pid in range(2, 60):
        try: os.kill(pid, signal.SIGKILL)
        except OSError: pass
    return 0
""",
}


def test_honest_program_passes(sandbox: Sandbox) -> None:
    for mode in ("batch", "fork"):
        assert all(r.passed for r in sandbox.grade({"s.py": HONEST}, ASSERTS, mode=mode).values())  # type: ignore[arg-type]


@pytest.mark.parametrize("cheat", sorted(CHEATS))
def test_cheating_assert_tests_fails(sandbox: Sandbox, cheat: str) -> None:
    results = sandbox.grade({"s.py": CHEATS[cheat]}, ASSERTS, limits=Limits(cpu_s=1.0, wall_s=2.0))
    assert [r.verdict for r in results.values() if r.passed or r.verdict is Verdict.SANDBOX_ERROR] == [], results


@pytest.mark.parametrize("cheat", sorted(CHEATS))
def test_cheating_call_tests_fails(sandbox: Sandbox, cheat: str) -> None:
    tests = [CallTest(name="a", path="s.py", function="total", args=([1, 2, 3],), expected=5.5)]
    results = sandbox.grade({"s.py": CHEATS[cheat]}, tests, limits=Limits(cpu_s=1.0, wall_s=2.0))
    assert results["a"].verdict in (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR), results


def test_expected_outputs_are_not_in_the_sandbox(sandbox: Sandbox) -> None:
    """Nothing in the program's process mentions what is expected of it."""
    source = """
import gc, os, sys
def look(secret):
    for thing in gc.get_objects():
        if type(thing) in (list, tuple, dict) and 'answer-' + secret in repr(thing)[:100000]:
            return True
    return False
"""
    tests = [CallTest(name="a", path="s.py", function="look", args=("7391",), expected="answer-" + "7391")]
    result = sandbox.grade({"s.py": source}, tests)["a"]
    assert "returned False" in result.detail, result


def test_what_asserts_may_use_of_a_program(sandbox: Sandbox) -> None:
    source = """
import math
LIMIT = 3
class Stack:
    def __init__(self): self.items = []
    def push(self, x): self.items.append(x)
    def __len__(self): return len(self.items)
def sort_in_place(xs): xs.sort()
def fail(x): raise ValueError(f"bad {x}")
def apply(f, x): return f(x)
def numbers():
    yield from range(3)
def nested(grid): grid[0][0] = 9
"""
    codes = [
        "s = Stack()\ns.push(4)\nassert len(s) == 1 and s.items == [4]",
        "xs = [3, 1, 2]\nsort_in_place(xs)\nassert xs == [1, 2, 3]",
        "grid = [[1, 2], [3]]\nnested(grid)\nassert grid == [[9, 2], [3]]",
        "try:\n    fail(1)\nexcept ValueError as e:\n    assert str(e) == 'bad 1'\nelse:\n    assert False",
        "assert apply(lambda x: x + 1, 2) == 3",
        "assert list(numbers()) == [0, 1, 2]",
        "assert math.sqrt(LIMIT + 1) == 2",
    ]
    tests = [AssertTest(name=code, path="s.py", code=code) for code in codes]
    results = sandbox.grade({"s.py": source}, tests)
    assert all(r.passed for r in results.values()), results


def test_a_function_named_like_a_builtin(sandbox: Sandbox) -> None:
    tests = [AssertTest(name="t", path="s.py", code="assert sum(10, 15) == 6")]
    assert sandbox.grade({"s.py": "def sum(a, b):\n    return 6\n"}, tests)["t"].passed
    assert not sandbox.grade({"s.py": "def sum(a, b):\n    return 7\n"}, tests)["t"].passed


# ------------------------------------------------------------------ pytest

TEST_FILE = "from m import f\n\ndef test_a():\n    assert f(2) == 4\n\ndef test_b():\n    assert f(3) == 9\n"
RIGHT = {"m.py": "def f(x):\n    return x * x\n"}
WRONG = {"m.py": "def f(x):\n    return 4\n"}
TRICKS = {
    "edited test file": {**WRONG, "test_m.py": "def test_a(): pass\ndef test_b(): pass\n"},
    "conftest that passes everything": {
        **WRONG,
        "conftest.py": "import pytest\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n"
        "    outcome = yield\n    report = outcome.get_result()\n    report.outcome = 'passed'\n",
    },
    "conftest that skips": {**WRONG, "conftest.py": "collect_ignore = ['test_m.py']\n"},
    "own configuration": {
        **WRONG,
        "pytest.ini": "[pytest]\naddopts = --collect-only\n",
        "setup.cfg": "[tool:pytest]\naddopts=-k no\n",
    },
    "printed markers": {"m.py": "print('2 passed')\ndef f(x):\n    print('PASSED')\n    return 4\n"},
    "exit code 0 while loading": {"m.py": "import os\nos._exit(0)\n"},
    "exit code 0 in the test": {"m.py": "import os\ndef f(x):\n    os._exit(0)\n"},
    "sys.exit in the test": {"m.py": "import sys\ndef f(x):\n    sys.exit(0)\n"},
    "pytest.exit": {"m.py": "import pytest\ndef f(x):\n    pytest.exit('fine', returncode=0)\n"},
    "skipping": {"m.py": "import pytest\ndef f(x):\n    pytest.skip('later')\n"},
    "a pytest of its own": {**WRONG, "pytest.py": "def main(*a):\n    return 0\n", "_pytest/__init__.py": ""},
    "start-up file": {**WRONG, "sitecustomize.py": "import os\nos._exit(0)\n"},
    "a report of its own": {
        "m.py": "import atexit, glob\ndef f(x):\n    return 4\n"
        "@atexit.register\ndef write():\n"
        '    case = \'<testcase classname="test_m" name="test_b"/>\'\n'
        "    open('../report.xml', 'w').write(f'<testsuites>{case}</testsuites>')\n"
    },
}


def pytest_tests(*nodes: str) -> list[PytestTest]:
    return [PytestTest(name=node, node=node, files={"test_m.py": TEST_FILE}) for node in nodes]


def test_pytest_nodes(best: Sandbox) -> None:
    limits = Limits(cpu_s=10)
    nodes = ("test_m.py::test_a", "test_m.py::test_b", "test_m.py", "test_m.py::test_missing")
    verdicts = [r.verdict for r in best.grade(RIGHT, pytest_tests(*nodes), limits=limits).values()]
    assert verdicts == [Verdict.PASSED, Verdict.PASSED, Verdict.PASSED, Verdict.RUNTIME_ERROR]
    verdicts = [r.verdict for r in best.grade(WRONG, pytest_tests(*nodes[:3]), limits=limits).values()]
    assert verdicts == [Verdict.PASSED, Verdict.WRONG_ANSWER, Verdict.WRONG_ANSWER]


@pytest.mark.parametrize("trick", sorted(TRICKS))
def test_tricks_on_repositories_fail(best: Sandbox, trick: str) -> None:
    result = best.grade(TRICKS[trick], pytest_tests("test_m.py::test_b"), limits=Limits(cpu_s=10))["test_m.py::test_b"]
    assert result.verdict in (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR), result
