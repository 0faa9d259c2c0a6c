"""Sets of functions with assert tests: HumanEval, HumanEval+, MBPP (raw, sanitized), MBPP+, LeetCodeDataset.

Each assert becomes a test of its own, so that a half-right program has a score between 0 and 1.
"""

from __future__ import annotations

import ast
import builtins
import textwrap
from collections.abc import Sequence

from didpo.tasks.reading import Row, Unusable, compiles, need, parse
from didpo.types import AssertTest, Files, Task

PATH = "solution.py"
HARNESS = "harness.py"
CHECK_PARTS = 400  # more asserts than this in one check stay together: one test each would only cost time


# ---------------------------------------------------------------- HumanEval


def humaneval(row: Row) -> Task:
    """HumanEval and HumanEval+ rows: `prompt` ends with the docstring, `test` defines `check(candidate)`; rows of the
    EvalPlus releases have `base_input`, `plus_input` and no `test`: the canonical solution then gives the answers."""
    task_id, prompt, entry = need(row, "task_id", "prompt", "entry_point")
    solution = row.get("canonical_solution") or ""
    helpers = helper_source(prompt, entry)
    if row.get("test"):
        parts = split_check(row["test"])
    elif row.get("base_input"):
        parts = [check_against(prompt + solution, entry, row)]
    else:
        raise Unusable("no tests")
    return Task(
        task_id=str(task_id),
        prompt=f"Complete the function `{entry}` in {PATH}.\n\n{prompt}",
        files={PATH: stub_of(prompt, entry)},
        hidden_tests=assert_tests(parts, prelude=helpers, call=f"check({entry})"),
        reference={PATH: prompt + solution} if solution else None,
        meta={"benchmark": "humaneval", "entry_point": entry, "question": prompt},
    )


def helper_source(prompt: str, entry: str) -> str:
    """The functions that the prompt gives besides the asked one. The tests use them, so they run on the tests' side:
    a candidate that rewrites `poly` must not change what is asserted."""
    tree = parse(prompt + "\n    pass\n")
    kept = [n for n in tree.body if not (isinstance(n, ast.FunctionDef) and n.name == entry)]
    return "\n".join(ast.unparse(n) for n in kept) if any(isinstance(n, ast.FunctionDef) for n in kept) else ""


def stub_of(prompt: str, entry: str) -> str:
    """The prompt with a body that fails: the asked function raises."""
    text = prompt.rstrip() + "\n    raise NotImplementedError\n"
    if not compiles(text):
        raise Unusable(f"the prompt does not end in a function; {entry} is asked for")
    return text


def check_against(solution: str, entry: str, row: Row) -> str:
    """Test code for rows that give inputs only: run the canonical solution beside the candidate."""
    inputs = [*row["base_input"], *(row.get("plus_input") or [])]
    atol = float(row.get("atol") or 0)
    return (
        f"import copy\nATOL = {atol!r}\nINPUTS = {inputs!r}\n_space = {{}}\nexec({solution!r}, _space)\n"
        + textwrap.dedent(
            f"""
            def same(a, b):
                if ATOL and isinstance(b, float):
                    return isinstance(a, (int, float)) and abs(a - b) <= ATOL + 1e-7 * abs(b)
                if ATOL and isinstance(b, (list, tuple)):
                    return isinstance(a, (list, tuple)) and len(a) == len(b) and all(map(same, a, b))
                return a == b

            def check(candidate):
                for args in INPUTS:
                    assert same(candidate(*copy.deepcopy(args)), _space[{entry!r}](*copy.deepcopy(args))), args
            """
        )
    )


# ---------------------------------------------------------------- check(candidate)


def split_check(source: str) -> list[str]:
    """`def check(candidate)` as one check per assert. Statements without an assert are set-up and come along; asserts
    of constants test nothing and are dropped. Raises Unusable where no assert is left."""
    tree = parse(source)
    check = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "check"), None)
    if check is None:
        raise Unusable("no check(candidate) in the tests")
    outside = "\n".join(ast.unparse(n) for n in tree.body if n is not check and not _is_metadata(n))
    texts = _statements(source, check)
    setup: list[str] = []
    parts: list[str] = []
    for node, text in zip(check.body, texts, strict=True):
        if not any(isinstance(n, ast.Assert) for n in ast.walk(node)):
            setup.append(text)
        elif not (isinstance(node, ast.Assert) and _is_constant(node.test)):
            body = "\n".join([*setup, text])
            parts.append(f"{outside}\ndef check(candidate):\n{body}\n".lstrip("\n"))
    if not parts:
        raise Unusable("no asserts in the tests")
    return parts if len(parts) <= CHECK_PARTS else [f"{outside}\n{ast.unparse(check)}\n"]


def _statements(source: str, function: ast.FunctionDef) -> list[str]:
    """The text of each statement of a function, indented as it stands: whole lines where no two share one (fast for
    long tests), else as the parser prints them."""
    lines = source.split("\n")
    spans = [(n.lineno - 1, n.end_lineno or n.lineno) for n in function.body]
    firsts = [function.lineno, *(end for _, end in spans)]
    if all(start >= first for first, (start, _) in zip(firsts, spans, strict=False)):
        return ["\n".join(lines[start:end]) for start, end in spans]
    return [textwrap.indent(ast.unparse(n), "    ") for n in function.body]


def _is_metadata(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "METADATA" for t in node.targets)


def _is_constant(node: ast.expr) -> bool:
    return not any(isinstance(n, ast.Name) and not hasattr(builtins, n.id) for n in ast.walk(node))


def assert_tests(
    parts: Sequence[str], *, prelude: str = "", call: str = "", path: str = PATH, prefix: str = "assert"
) -> tuple[AssertTest, ...]:
    """One AssertTest for each piece of code, with `prelude` before and the line `call` after it."""
    codes = ["\n".join(x for x in (prelude, part, call) if x) + "\n" for part in parts]
    return tuple(AssertTest(name=f"{prefix}/{i}", path=path, code=code) for i, code in enumerate(codes))


# ---------------------------------------------------------------- MBPP


def mbpp(row: Row) -> Task:
    """MBPP rows: raw ones have `text`, sanitized and MBPP+ ones `prompt`; MBPP+ adds `test`, a whole test program.

    The first assert is shown in the prompt (it names the function); the others stay hidden.
    """
    task_id, tests = need(row, "task_id", "test_list")
    text = row.get("text") or row.get("prompt")
    if not text:
        raise Unusable("no field 'text' or 'prompt'")
    if not tests:
        raise Unusable("no tests")
    code = (row.get("code") or row.get("canonical_solution") or "").replace("\r\n", "\n")
    setup = "\n".join([*(row.get("test_imports") or []), (row.get("test_setup_code") or "").replace("\r\n", "\n")])
    names = called_names([setup, *tests], code)
    if not names:
        raise Unusable("the tests call no function of the program")
    asserts = assert_tests([*tests, *(row.get("challenge_test_list") or [])], prelude=setup.strip())
    plus = assert_tests([row["test"]], prefix="plus") if row.get("test") else ()
    wanted = " and ".join(f"`{n}`" for n in names)
    return Task(
        task_id=f"mbpp/{str(task_id).removeprefix('Mbpp/')}",
        prompt=f"{text}\n\nDefine {wanted} in {PATH}. A test that it must pass:\n{tests[0]}\n",
        files={PATH: "".join(f"def {n}(*args):\n    raise NotImplementedError\n" for n in names)},
        visible_tests=asserts[:1],
        hidden_tests=asserts[1:] + plus,
        reference={PATH: code} if code else None,
        meta={
            "benchmark": "mbpp",
            "entry_point": names[0],
            "question": text,
            "split": mbpp_split(str(task_id)),
        },
    )


def mbpp_split(task_id: str) -> str:
    """The split of the publication: ids 1-10 prompt, 11-510 test, 511-600 validation, 601-974 train."""
    number = int(task_id.rpartition("/")[2])
    return "prompt" if number <= 10 else "test" if number <= 510 else "validation" if number <= 600 else "train"


def called_names(tests: Sequence[str], code: str) -> list[str]:
    """The names that the tests take from the program: those they read and do not define, functions that the program
    defines first (a program may define `sum`)."""
    defined = _defined(code)
    stored: set[str] = set()
    used: list[str] = []
    for node in (n for text in tests for n in ast.walk(parse(textwrap.dedent(text)))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            used.append(node.id)
        elif isinstance(node, ast.Name):
            stored.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            stored |= {(a.asname or a.name).split(".")[0] for a in node.names}
    names = [n for n in dict.fromkeys(used) if n not in stored]
    own = [n for n in names if n in defined]
    return own or [n for n in names if not hasattr(builtins, n)]


def _defined(code: str) -> set[str]:
    try:
        body = parse(code).body
    except SyntaxError:
        return set()
    names = {n.name for n in body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    return names | {t.id for n in body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}


# ---------------------------------------------------------------- LeetCode


LEETCODE_TOLD = f"Write the class in {PATH}; {HARNESS} gives it its imports."


def leetcode(row: Row) -> Task:
    """LeetCodeDataset rows. `prompt` holds the names that the judge provides (typing, ListNode, list_node, ...);
    0.3.1 has `starter_code` and `problem_description`, older rows only `query`, whose last fence is the starter."""
    task_id, prelude, entry, test = need(row, "task_id", "prompt", "entry_point", "test")
    meta = row.get("meta") or {}
    question = row.get("problem_description") or row.get("query") or ""
    starter = row.get("starter_code") or _last_fence(row.get("query") or "")
    if not starter.strip():
        raise Unusable("no starter code")
    parts = split_check(test)
    builders = builder_code(prelude, test)
    method = entry.removeprefix("Solution().")
    return Task(
        task_id=f"leetcode/{task_id}",
        prompt=f"{question.strip()}\n\n{LEETCODE_TOLD}\n\n{starter.rstrip()}\n",
        files={PATH: leetcode_stub(starter), HARNESS: harness(prelude, method)},
        hidden_tests=assert_tests(
            [remote_builders(p) for p in parts] if builders else parts,
            prelude=builders,
            call=f"check({method})",
            path=HARNESS,
        ),
        difficulty=str(row.get("difficulty") or meta.get("difficulty") or "").lower(),
        reference={PATH: row["completion"], HARNESS: harness(prelude, method)} if row.get("completion") else None,
        meta={
            "benchmark": "leetcode",
            "entry_point": method,
            "question": question,
            "contest_date": row.get("estimated_date") or "",
            "tags": tuple(row.get("tags") or ()),
        },
    )


def harness(prelude: str, method: str) -> str:
    """A program that runs solution.py with the names the judge provides and makes `method` callable, whether the
    solution is a class `Solution` or a plain function."""
    return (
        f"# The judge runs {PATH} after these lines.\n{prelude.rstrip()}\n\n"
        f'exec(compile(open("{PATH}", encoding="utf-8").read(), "{PATH}", "exec"))\n'
        f'if "Solution" in globals():\n    {method} = Solution().{method}\n'
    )


def leetcode_stub(starter: str) -> str:
    """The starter code with a body that raises."""
    text = starter.rstrip()
    indent = len(text.rpartition("\n")[2]) - len(text.rpartition("\n")[2].lstrip()) + 4
    stub = f"{text}\n{' ' * indent}raise NotImplementedError\n"
    return stub if compiles(stub) else f"{text}\n"


def _last_fence(text: str) -> str:
    """The text of the last fenced block, or nothing."""
    pieces = text.split("```")
    return pieces[-2].removeprefix("python").lstrip("\n") if len(pieces) >= 3 else ""


BUILDERS = ("list_node", "tree_node")


def builder_code(prelude: str, test: str) -> str:
    """Where tests use linked lists or trees: the prelude for the tests' own side (so that comparing them is out of the
    candidate's hands), after the candidate's builders were kept under other names. Else nothing."""
    if not any(f"{name}(" in test for name in (*BUILDERS, "is_same_list", "is_same_tree")):
        return ""
    kept = "\n".join(f"_candidate_{name} = {name}" for name in BUILDERS)
    return f"{kept}\n{prelude}"


class _RemoteBuilders(ast.NodeTransformer):
    """In the arguments of candidate(...), builders are the candidate's: its own objects go in."""

    def __init__(self) -> None:
        self.inside = 0

    def visit_Call(self, node: ast.Call) -> ast.AST:
        mine = isinstance(node.func, ast.Name) and node.func.id == "candidate"
        self.inside += mine
        if self.inside and isinstance(node.func, ast.Name) and node.func.id in BUILDERS:
            node.func = ast.Name(id=f"_candidate_{node.func.id}", ctx=ast.Load())
        self.generic_visit(node)
        self.inside -= mine
        return node


def remote_builders(code: str) -> str:
    return ast.unparse(_RemoteBuilders().visit(parse(code)))


def with_files(task: Task, code: str) -> Files:
    """The workspace of a task with `code` as the solution."""
    return {**task.files, PATH: code}
