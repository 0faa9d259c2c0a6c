"""Faults that users of similar projects met, part 4: cut-off turns, time limits, floods, judging (C22, C24, C25).

One test per expectation, named after the case. Inputs and right results are this project's own; programs run for real.
"""

from __future__ import annotations

import os
import re
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from didpo.agent import RepairAgent
from didpo.credit import didpo
from didpo.env import CodingEnv, EnvSettings
from didpo.rollout import RolloutSettings, run_groups
from didpo.sampling import ScriptedSampler
from didpo.sandbox import Limits, Sandbox, TestResult, Verdict, open_sandbox
from didpo.tokens import train_tokenizer
from didpo.trainer import training_rows
from didpo.types import AssertTest, CallTest, StdioTest, StopReason, Task, Test

SHORT = Limits(cpu_s=2.0, wall_s=2.0, memory_mb=512, processes=8)
GOOD = "print(input())\n"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox(require="process", workers=2) as opened:
        yield opened


def program(
    sandbox: Sandbox, code: str, stdin: str = "", expected: str = "", limits: Limits | None = None
) -> TestResult:
    test = StdioTest(name="t", path="main.py", stdin=stdin, expected=expected)
    return sandbox.grade({"main.py": code}, [test], limits=limits)["t"]


# ---------------------------------------------------------------- C22 truncation in a rollout of several turns

BROKEN = "def f(x):\n    return x - 1\n"
FIXED = "def f(x):\n    return x + 1\n"
TASK = Task(
    task_id="t",
    prompt="f adds 1.\n",
    files={"s.py": BROKEN},
    hidden_tests=(CallTest(name="f/0", path="s.py", function="f", args=(1,), expected=2),),
)


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_c22_5_a_cut_off_turn_ends_the_rollout(sandbox: Sandbox, turn: int) -> None:
    """In whichever turn: its action is not run, no further turn is drawn, the rollout is marked and earns nothing."""
    tokenizer = train_tokenizer([FIXED] * 4, vocab_size=260)
    harmless = "<edit s.py><search>- 1</search><replace>- 1 </replace></edit>"
    harmless_again = "<edit s.py><search>- 1 </search><replace>- 1</replace></edit>"
    right = f"<edit s.py>\n<code>\n{FIXED}</code>\n</edit>"
    replies = [*[harmless, harmless_again, harmless][:turn], right + "\n" + "# and on it goes" * 40]
    played = ScriptedSampler(tokenizer, lambda prompt, call: replies[call])
    (group,) = run_groups(
        [TASK],
        settings=RolloutSettings(group_size=1, max_new_tokens=200),
        seed=0,
        make_env=lambda task: CodingEnv(task, sandbox, settings=EnvSettings(max_turns=4)),
        grade_many=sandbox.grade_many,
        agent=RepairAgent(),
        encode=tokenizer.encode,
        sampler=played,
    )
    (trajectory,) = group.trajectories
    assert played.calls == len(trajectory.steps) == turn + 1
    assert trajectory.stop_reason is StopReason.LENGTH and trajectory.outcome == 0.0
    last = trajectory.steps[-1]
    assert "</code>" in last.response and last.finish_reason == "length"
    assert last.files_after == last.files_before and last.edits == () and last.reward == 0.0
    rows = training_rows([group], [didpo(group)], "mask")
    assert len(rows) == turn + 1 and not any(row.n_trained for row in rows)


def test_c22_5_a_cut_off_turn_earns_nothing_even_on_solved_code(sandbox: Sandbox) -> None:
    """Where the workspace passes all tests already, a cut-off response is still no success."""
    env = CodingEnv(Task(task_id="t", prompt="", files={"s.py": FIXED}, hidden_tests=TASK.hidden_tests), sandbox)
    done = env.step("<think>all is well and", "length")
    assert (done.reward, done.outcome, done.stop_reason, done.done) == (0.0, 0.0, StopReason.LENGTH, True)


# ---------------------------------------------------------------- C24 time limits and floods


def alive(mark: str) -> list[str]:
    """Processes of this machine that carry `mark` in their command line."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if mark.encode() in (folder / "cmdline").read_bytes():
                    found.append(folder.name)
            except OSError:  # it has ended meanwhile
                continue
    return found


def unique_seconds() -> str:
    return f"300.{uuid.uuid4().int % 10**12:012d}"


STUBBORN = """\
import signal, subprocess
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
    signal.signal(number, signal.SIG_IGN)
try:
    subprocess.Popen(["sleep", "{mark}"]{more})
except OSError:  # where no program may start another
    pass
while True:
    pass
"""


def in_time(ask: Any, seconds: float = 5.0) -> Any:
    """The result of `ask()`; it must come within `seconds`, at the second attempt where the machine was busy."""
    for last in (False, False, True):
        began = time.monotonic()
        result = ask()
        if time.monotonic() - began < seconds:
            return result
        assert not last, f"took longer than {seconds} s three times"
    return None


@pytest.mark.parametrize("more", ["", ", start_new_session=True"])
def test_c24_1_a_stubborn_program_and_its_child(sandbox: Sandbox, more: str) -> None:
    """A program that ignores signals and a child that holds its output: a time-out, soon, and nothing stays alive."""
    mark = unique_seconds()
    code = STUBBORN.format(mark=mark, more=more)
    for limits in (SHORT, Limits(cpu_s=2.0, wall_s=2.0)):  # children allowed, and forbidden
        result = in_time(lambda limits=limits: program(sandbox, code, limits=limits))
        assert result.verdict is Verdict.TIMEOUT
        assert alive(mark) == []


@pytest.mark.parametrize(
    "command",
    ["sleep {m} & trap '' TERM; while :; do :; done", "setsid sleep {m} & sleep {m}", "(sleep {m} &); exec sleep {m}"],
)
def test_c24_1_a_stubborn_shell_command(sandbox: Sandbox, command: str) -> None:
    """The same of an agent's shell command."""
    mark = unique_seconds()
    result = in_time(lambda: sandbox.run_command({"a": "x\r\n"}, command.format(m=mark), limits=SHORT))
    assert result.verdict is Verdict.TIMEOUT and result.files == {"a": "x\r\n"}
    assert alive(mark) == []


def test_c24_1_a_child_left_behind_ends_with_the_program(sandbox: Sandbox) -> None:
    """A program that ends well and leaves a child: nothing of it stays alive either."""
    mark = unique_seconds()
    code = f"import subprocess\nsubprocess.Popen(['sleep', '{mark}'])\nprint(1)\n"
    in_time(lambda: program(sandbox, code, expected="1", limits=SHORT))
    in_time(lambda: sandbox.run_command({}, f"setsid sleep {mark} & echo 1", limits=SHORT))
    assert alive(mark) == []


def peak_growth(call: Any) -> tuple[Any, float]:
    """The result of `call()` and by how many MB the peak memory of this process rose meanwhile."""

    def read(name: str) -> int:
        found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found is not None
        return int(found[1])

    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from what is used now
    before = read("VmRSS")
    result = call()
    return result, (read("VmHWM") - before) / 1024


FLOODS = [
    "import sys\nfor _ in range(200):\n    sys.stdout.write('x' * 10**6)\n",
    "import os\nwhile True:\n    os.write(1, b'y\\n' * 10**6)\n",
    "import sys\nfor _ in range(200):\n    sys.stderr.write('x' * 10**6)\n",
]


@pytest.mark.parametrize("code", FLOODS)
def test_c24_2_a_flood_of_output(sandbox: Sandbox, code: str) -> None:
    """200 MB and more: a verdict with a notice, and the grader does not grow with it."""
    program(sandbox, GOOD, "1", "1")
    result, growth = peak_growth(lambda: program(sandbox, code, limits=Limits(cpu_s=20.0)))
    assert result.verdict is Verdict.OUTPUT_LIMIT and not result.passed and len(result.detail) < 500
    assert "bytes" in result.detail and "cut off" in result.detail
    assert growth < 50


def test_c24_2_a_flood_in_the_shell(sandbox: Sandbox) -> None:
    """What a command prints is kept up to a limit, with a notice; the agent sees less of it still, with another."""
    flood = "yes | head -c 200000000"
    sandbox.run_command({}, "true")
    result, growth = peak_growth(lambda: sandbox.run_command({}, flood))
    assert result.verdict is Verdict.OUTPUT_LIMIT and len(result.output) < 70_000 and "cut off" in result.output
    assert growth < 50
    step = CodingEnv(TASK, sandbox).step(f"<run>{flood}</run>")
    assert len(step.observation) < 3000 and "left out" in step.observation


@pytest.mark.parametrize("code", ["input()\n", "import sys\nfor _ in range(3):\n    input()\n", "open(0).read(1)[0]\n"])
def test_c24_3_no_input_ends_at_once(sandbox: Sandbox, code: str) -> None:
    """A program that reads what is not there gets the end of input, not a wait."""
    result = program(sandbox, code)
    assert result.verdict is Verdict.RUNTIME_ERROR and result.cpu_s < 1
    assert ("EOFError" if "input()" in code else "IndexError") in result.detail


def test_c24_3_no_input_anywhere(sandbox: Sandbox) -> None:
    """The same for functions, for code that a test loads, and in the shell."""
    files = {"m.py": "def f():\n    return input()\n", "n.py": "x = input()\n"}
    tests: list[Test] = [
        CallTest(name="call", path="m.py", function="f"),
        AssertTest(name="assert", path="m.py", code="assert f() == ''"),
        CallTest(name="load", path="n.py", function="f"),
    ]
    results = sandbox.grade(files, tests)
    assert {r.verdict for r in results.values()} == {Verdict.RUNTIME_ERROR}
    assert all("EOFError" in r.detail for r in results.values())
    assert "EOFError" in sandbox.run_command(files, "python3 n.py").output


BOMBS = [
    "x = bytearray(4 << 30)\n",
    "x = []\nwhile True:\n    x.append(bytearray(1 << 24))\n",
    "import mmap\nm = mmap.mmap(-1, 4 << 30)\nfor i in range(0, 4 << 30, 4096):\n    m[i] = 1\n",
    "x = 'a' * (4 << 30)\n",
]


@pytest.mark.parametrize("code", BOMBS)
def test_c24_4_a_memory_bomb(sandbox: Sandbox, code: str) -> None:
    """4 GB under 512 MB: refused, and programs that run beside it are graded as ever."""
    good = ({"main.py": GOOD}, [StdioTest(name="t", path="main.py", stdin="7", expected="7")])
    bomb = ({"main.py": code}, good[1])
    results = sandbox.grade_many([good, bomb, good, bomb, good], limits=Limits(cpu_s=8.0, memory_mb=512))
    verdicts = [r["t"].verdict for r in results]
    assert verdicts[::2] == [Verdict.PASSED] * 3
    assert set(verdicts[1::2]) <= {Verdict.MEMORY, Verdict.RUNTIME_ERROR}


def test_c24_5_one_bad_program_never_stops_the_batch(sandbox: Sandbox) -> None:
    """Loops, floods, bombs, exits and crashes in a batch: each has its verdict, the others keep theirs."""
    stdin = StdioTest(name="t", path="main.py", stdin="7", expected="7")
    crash = f"import os\nos.kill(os.getpid(), {int(signal.SIGSEGV)})\n"
    bad = {
        "while True: pass\n": Verdict.TIMEOUT,
        FLOODS[1]: Verdict.OUTPUT_LIMIT,
        BOMBS[0]: Verdict.MEMORY,  # refused at once, not filled
        "raise SystemExit(3)\n": Verdict.RUNTIME_ERROR,
        "import os\nos._exit(0)\n": None,
        crash: Verdict.RUNTIME_ERROR,
        "def broken(:\n": Verdict.RUNTIME_ERROR,
    }
    codes = [code for one in bad for code in (GOOD, one)] + [GOOD]
    results = sandbox.grade_many([({"main.py": code}, [stdin]) for code in codes], limits=SHORT)
    for code, result in zip(codes, results, strict=True):
        verdict = result["t"].verdict
        if code == GOOD:
            assert verdict is Verdict.PASSED
        else:
            assert verdict not in (Verdict.PASSED, Verdict.SANDBOX_ERROR)
            assert bad[code] in (None, verdict), code


# ---------------------------------------------------------------- C25 reading and comparing like a judge

MIXED_READS = (
    "import sys\nrd = sys.stdin.buffer; n = int(rd.readline()); nums = rd.readline().split(); rest = rd.read().split();"
    ' sys.stdout.buffer.write(str(n + sum(map(int, nums)) + len(rest)).encode() + b"\\n")\n'
)


@pytest.mark.parametrize(
    "code",
    [
        MIXED_READS,
        "import os\na = os.read(0, 100).split()\nprint(3 + 6 + len(a) - 4)\n",
        "import sys\nn = int(input()); s = sum(map(int, sys.stdin.readline().split()));"
        " print(n + s + len(input().split()))\n",
        "import sys\nn, nums, rest = sys.stdin\nprint(int(n) + sum(map(int, nums.split())) + len(rest.split()))\n",
        "import sys, io\nf = io.TextIOWrapper(sys.stdin.buffer)\nprint(int(f.readline()) + 6 + 2)\n",
    ],
)
def test_c25_1_streams_are_real(sandbox: Sandbox, code: str) -> None:
    """Bytes, text and descriptors, also mixed, read and write the same real streams."""
    result = program(sandbox, code, "3\n1 2 3\na b\n", "11\n")
    assert result.passed, result.detail


@pytest.mark.parametrize(
    ("printed", "expected", "right"),
    [
        ("0.333333", "0.333333333333", True),  # expectation 2
        ("1000000.5", "1000000", True),
        ("-0.0", "0", True),
        ("1e-7", "0.0", True),
        ("2.50", "2.5", True),
        ("1 2 \\n3\\n\\n", "1 2\n3", True),  # expectation 3
        ("1 2\\r\\n3\\r\\n", "1 2\n3\n", True),
        ("1\\t2\\n3", "1 2\n3", True),
        ("0.34", "0.333333333333", False),  # expectation 4
        ("1000002.5", "1000000", False),
        ("nan", "0.5", False),
        ("12", "1 2", False),  # words and tokens
        ("1 2", "12", False),
        ("Yes", "YES", False),
        ("a b", "a  b", True),
        ("", "1", False),
        ("1 2 3", "1 2", False),
        ("123456789", "123456788", False),  # whole numbers exactly
        ("0x10", "16", False),
    ],
)
def test_c25_2_3_4_tokens_are_compared(sandbox: Sandbox, printed: str, expected: str, right: bool) -> None:
    """Numbers to 1e-6 absolute or relative, words exactly, blanks between tokens and at the ends as they like."""
    result = program(sandbox, f"print('{printed}', end='')\n", "", expected)
    assert result.verdict is (Verdict.PASSED if right else Verdict.WRONG_ANSWER), result.detail


def test_c25_5_the_main_guard_runs(sandbox: Sandbox) -> None:
    """A program is `__main__`, in every case of a batch; a module that a test calls is not."""
    guarded = "def main():\n    print(int(input()) * 2)\n\nif __name__ == '__main__':\n    main()\n"
    tests = [StdioTest(name=str(i), path="main.py", stdin=str(i), expected=str(2 * i)) for i in range(3)]
    for mode in ("batch", "fork"):
        assert all(r.passed for r in sandbox.grade({"main.py": guarded}, tests, mode=mode).values())
    imported = "x = 1\nif __name__ == '__main__':\n    x = 2\n\ndef f():\n    return x\n"
    call = CallTest(name="t", path="main.py", function="f", expected=1)
    assert sandbox.grade({"main.py": imported}, [call])["t"].passed


@pytest.mark.parametrize(
    ("value", "expected", "right"),
    [
        ("(1, 2)", [1, 2], True),
        ("[(1, 2), (3,)]", [[1, 2], [3]], True),
        ("{'a': (1, [2, (3,)])}", {"a": [1, [2, [3]]]}, True),
        ("[1, 2]", (1, 2), True),
        ("(1, 2)", [2, 1], False),
        ("(1, 2)", [1, 2, 3], False),
        ("{1, 2}", [1, 2], False),
        ("'12'", ["1", "2"], False),
        ("(0.1 + 0.2,)", [0.3], True),
        ("1", "1", False),
    ],
)
def test_c25_6_a_tuple_is_the_list_of_its_items(sandbox: Sandbox, value: str, expected: Any, right: bool) -> None:
    """Recorded values know no tuples: one equals the list with the same items, at any depth, and nothing else."""
    test = CallTest(name="t", path="m.py", function="f", expected=expected)
    result = sandbox.grade({"m.py": f"def f():\n    return {value}\n"}, [test])["t"]
    assert result.verdict is (Verdict.PASSED if right else Verdict.WRONG_ANSWER), result.detail
