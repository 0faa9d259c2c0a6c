"""DS-1000: completions of data-science snippets, judged by code that compares arrays and frames.

The published tests run the snippet inside the process that judges it. Here the snippet runs in the candidate's process
(`harness.py`), and only the bytes of its result come back; the tests' side rebuilds arrays and frames from them with
an unpickler that knows the constructors of numpy and pandas data and nothing else.
"""

from __future__ import annotations

import importlib.util
import re

from didpo.tasks.reading import Row, Unusable, json_field, need
from didpo.types import AssertTest, Task

PATH = "solution.py"
HARNESS = "harness.py"
LIBRARIES = {"Numpy": ("numpy",), "Pandas": ("numpy", "pandas"), "Scipy": ("numpy", "scipy")}  # name -> imports

HARNESS_CODE = f'''# Runs {PATH} in the place that the problem gives it, and hands over what it made.
import pickle


def run(template, data):
    with open("{PATH}", encoding="utf-8") as file:
        code = template.replace("[insert]", file.read())
    space = {{"test_input": pickle.loads(data)}}
    exec(compile(code, "{PATH}", "exec"), space)
    return pickle.dumps(space["result"])


def source():
    with open("{PATH}", encoding="utf-8") as file:
        return file.read()
'''

TEST_PRELUDE = """
import builtins as _builtins
import io as _io
import pickle as _pickle

_ALLOWED = {
    "numpy": {"ndarray", "dtype", "matrix"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.numeric": {"_frombuffer"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.ma.core": {"MaskedArray", "_mareconstruct"},
    "pandas": {"DataFrame", "Series", "Timestamp", "Timedelta", "Interval", "Period", "Categorical", "Index",
               "RangeIndex", "MultiIndex", "DatetimeIndex", "TimedeltaIndex", "PeriodIndex", "IntervalIndex",
               "CategoricalIndex", "StringDtype", "CategoricalDtype", "DatetimeTZDtype", "PeriodDtype",
               "IntervalDtype", "NA", "BooleanDtype", "Int64Dtype", "Float64Dtype"},
    "builtins": {"slice", "complex", "set", "frozenset", "bytearray", "range", "dict", "object"},
    "copyreg": {"_reconstructor"},
    "collections": {"OrderedDict", "defaultdict", "Counter", "deque"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "_codecs": {"encode"},
}
_DATA = ("pandas.core.frame", "pandas.core.series", "pandas.core.internals", "pandas.core.indexes",
         "pandas.core.arrays", "pandas.arrays", "pandas.core.dtypes.dtypes", "pandas._libs", "scipy.sparse")
_MAKERS = {"_unpickle_block", "_new_Index", "_new_DatetimeIndex", "_new_PeriodIndex", "_new_IntervalIndex",
           "_unpickle_timestamp", "NA",
           "_timedelta_unpickle", "_reconstruct", "_reconstructor", "scalar", "_frombuffer", "_mareconstruct", "encode"}


class _Data(_pickle.Unpickler):
    def find_class(self, module, name):
        known = name in _ALLOWED.get(module, ()) or any(module == m or module.startswith(m + ".") for m in _DATA)
        known = known or (module.startswith("scipy.stats.") and name.endswith("Result"))
        if known and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) or name in _MAKERS or name.startswith("__pyx_unpickle_"):
                return found
        raise _pickle.UnpicklingError(f"the result holds {module}.{name}")


def exec(code, space=None):
    if space is None or "test_input" not in space:
        return _builtins.exec(code, globals() if space is None else space)
    reply = run(code, _pickle.dumps(space["test_input"]))
    space["result"] = _Data(_io.BytesIO(reply)).load()
"""


def ds1000(row: Row) -> Task:
    """A row of the simplified format (`reference_code`, `code_context`), or of the older one nested by library. Raises
    Unusable where the library is not installed or its objects cannot cross between processes."""
    prompt, context = need(row, "prompt", "code_context")
    meta = json_field(row, "metadata", {})
    library = str(meta.get("library") or "")
    if library not in LIBRARIES:
        raise Unusable(f"{library or 'unnamed library'}: its results are not arrays or frames that can be handed over")
    reference = row.get("reference_code")
    if re.search(r"^\s*(import|from) (torch|tensorflow)", f"{context}\n{reference}", re.MULTILINE):
        raise Unusable(f"{library}: its results are tensors, which are not handed over")
    lacking = missing_imports(context, reference or "", *(f"import {name}" for name in LIBRARIES[library]))
    if lacking:
        raise Unusable(f"{library}: not installed ({', '.join(lacking)})")
    if "def test_execution" not in context or 'test_env["result"]' not in context:
        raise Unusable("no test_execution with a result")
    strings = "def test_string" in context
    tests = [_test("execution", context, 'test_execution("[insert]")')]
    if strings:
        tests.append(_test("string", context, "test_string(source())"))
    return Task(
        task_id=f"ds1000/{meta['problem_id']}",
        prompt=f"{prompt.rstrip()}\n\nWrite the missing lines into {PATH}.\n",
        files={PATH: "raise NotImplementedError\n", HARNESS: HARNESS_CODE},
        hidden_tests=tuple(tests),
        difficulty="",
        reference={PATH: reference, HARNESS: HARNESS_CODE} if reference else None,
        meta={
            "benchmark": "ds1000",
            "question": prompt,
            "library": library,
            "perturbation": str(meta.get("perturbation_type") or ""),
            "imports": LIBRARIES[library],
        },
    )


def _test(name: str, context: str, call: str) -> AssertTest:
    return AssertTest(name=name, path=HARNESS, code=f"{TEST_PRELUDE}\n{context.rstrip()}\n\n\n{call}\n")


def missing_imports(*codes: str) -> list[str]:
    """The top-level modules that the codes (and the template inside a context) import and that are not installed."""
    names = {n for code in codes for n in re.findall(r"^\s*(?:import|from)\s+(\w+)", code, re.MULTILINE)}
    return sorted(n for n in names if importlib.util.find_spec(n) is None)
