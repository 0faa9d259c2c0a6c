"""Response text to action, exact spans, application that is exact or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from didpo.actions import Action, Applied, apply, edit_spans, files_after, parse
from didpo.types import Step


def edit(path: str, *pairs: tuple[str, str]) -> str:
    body = "".join(f"<search>{old}</search><replace>{new}</replace>" for old, new in pairs)
    return f"<edit {path}>{body}</edit>"


def run(text: str, *pairs: tuple[str, str]) -> Applied:
    return apply(parse(edit("f", *pairs)), {"f": text})


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    "tag", ["<edit a.py>", '<edit path="a.py">', "<edit path='a.py'>", "<edit path=a.py>", "<edit  a.py >"]
)
def test_ways_to_name_a_file(tag: str) -> None:
    action = parse(f"{tag}<code>x</code></edit>")
    assert [(e.path, e.op, e.text.text) for e in action.edits] == [("a.py", "overwrite", "x")]


def test_default_path() -> None:
    assert parse("<edit><code>x</code></edit>").error == "<edit> names no file: write <edit PATH>"
    assert parse("<edit><code>x</code></edit>", default_path="a.py").edits[0].path == "a.py"


def test_one_line_end_after_the_opening_tag_is_no_payload() -> None:
    for text, payload in [("\na\n", "a\n"), ("a", "a"), ("\n\na", "\na"), ("\r\na\r\n", "a\r\n"), ("", ""), ("\n", "")]:
        (one,) = parse(f"<edit a><code>{text}</code></edit>").edits
        assert one.text.text == payload


def test_payload_ranges() -> None:
    response = "<think>é</think>\n<edit a.py>\n<search>\nold\n</search>\n<replace>\nneu é\n</replace>\n</edit>"
    (one,) = parse(response).edits
    assert one.search is not None
    assert response[one.search.start : one.search.end] == one.search.text == "old\n"
    assert response[one.text.start : one.text.end] == one.text.text == "neu é\n"


@pytest.mark.parametrize(
    ("response", "kind", "command"),
    [
        ("<finish>", "finish", None),
        ("done <finish/> now", "finish", None),
        ("<finish>all done</finish>", "finish", None),
        ("<execute_bash>\nls -l\n</execute_bash>", "run", "ls -l"),
        ("<run>echo '<edit a><code>x</code></edit>'</run>", "run", "echo '<edit a><code>x</code></edit>'"),
        ("<run>pytest</run><finish>", "run", "pytest"),
        ("<think><edit a><code>x</code></edit></think><finish>", "finish", None),
        ("the prompt opened the thought <finish> </think><run>ls</run>", "run", "ls"),
        ("use `<finish>` later; <run>ls</run>", "run", "ls"),
        ("```xml\n<run>ls</run>\n```", "run", "ls"),
    ],
)
def test_commands_and_finish(response: str, kind: str, command: str | None) -> None:
    action = parse(response)
    assert (action.kind, action.command, action.error) == (kind, command, None)


@pytest.mark.parametrize(
    ("response", "message"),
    [
        ("", "no action found"),
        ("I am done.", "no action found"),
        ("<think>an endless thought <finish>", "<think> is not closed"),
        ("<think><finish></think>", "no action found"),
        ("<edit a.py></edit>", "a.py: <edit> is empty"),
        ("<edit a.py>\nx = 1\n</edit>", "a.py: expected <search>"),
        ("<edit a.py>\n```python\nx = 1\n```\n</edit>", "a.py: expected <search>"),
        ("<edit a.py><code>x</code>", "</code> must be followed by </edit>"),
        ("<edit a.py><code>x</edit>", "<code> is not closed"),
        ("<edit a.py><code>x", "<code> is not closed"),
        ("<edit a.py>", "<edit> is not closed"),
        ("<edit a.py><search>x</search></edit>", "</search> must be followed by <replace>"),
        ("<edit a.py><search>x</search><replace>y</edit>", "<replace> is not closed"),
        ("<edit a.py><search>x<replace>y</replace></edit>", "<search> is not closed"),
        # a forgotten closing tag must not swallow the next edit
        ("<edit a><code>x</edit><edit b><code>y</code></edit>", "must be followed by </edit>"),
        ("<edit a><code>x\n<edit b><code>y</code></edit>", "must be followed by </edit>"),
        ("<edit a><search>x<search>y</search><replace>z</replace><search>q</replace></edit>", "a: "),
        ("<edit a><code>x</code></edit></edit>", "</edit> closes nothing"),
        ("<edit a><code>x</code><search>y</search><replace>z</replace></edit>", "</code> must be followed by </edit>"),
        ("<edit a><search>y</search><replace>z</replace><code>x</code></edit>", "a: "),
        ("<edit a><insert line=x>y</insert></edit>", "a: expected <search>"),
        ("<edit a><code>x</code></edit><run>ls</run>", "one kind of action"),
        ("<run>ls</run><run>pwd</run>", "one command"),
        ("<run> </run>", "the command is empty"),
        ("<run/>", "holds no command"),
        ("<run>ls", "<run> is not closed"),
        ("<edit a><code>\ud800</code></edit>", "not valid Unicode"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(response: str, message: str) -> None:
    action = parse(response)
    assert action.kind == "invalid"
    assert action.edits == ()
    assert action.error is not None
    assert message in action.error
    assert "\n" not in action.error


def test_edits_win_over_finish() -> None:
    assert parse("<finish><edit a><code>x</code></edit><finish>").kind == "edit"


def test_closing_tags_inside_the_payload() -> None:
    payload = 's = "</code>" + "</edit>" + "</replace></search>" + "<finish>" + "<think>"\n'
    (one,) = parse(f"<edit a>\n<code>\n{payload}</code>\n</edit>").edits
    assert one.text.text == payload
    (one,) = parse(f"<edit a><search>x</search><replace>{payload}</replace></edit>").edits
    assert one.text.text == payload


def test_a_fenced_payload_is_the_text_inside() -> None:
    response = "<edit a.py>\n<code>\n```python\nx = 1\n```\n</code>\n</edit>"
    (one,) = parse(response).edits
    assert one.text.text == response[one.text.start : one.text.end] == "x = 1\n"
    (one,) = parse(response.replace("a.py", "a.md")).edits
    assert one.text.text == "```python\nx = 1\n```\n"
    (one,) = parse("<edit a.py><code>\nx = '''\n```\n'''\n</code></edit>").edits
    assert one.text.text == "x = '''\n```\n'''\n"


def test_a_draft_in_a_thought_that_the_prompt_opened() -> None:
    response = "maybe <edit a.py><code>foo</think>\n<edit a.py><code>\nbar\n</code></edit>"
    assert [e.text.text for e in parse(response).edits] == ["bar\n"]
    response = "maybe <edit a.py><code>foo</code></edit>, no</think>\n<edit a.py><code>\nbar\n</code></edit>"
    assert [e.text.text for e in parse(response).edits] == ["bar\n"]


def test_several_edits() -> None:
    response = (
        "first\n<edit a><search>1</search><replace>2</replace>\n<search>3</search><replace></replace></edit>\n"
        'then\n<edit b><insert line="2">x\n</insert><insert after="z">y\n</insert></edit>'
    )
    found = [(e.path, e.op, e.search and e.search.text, e.text.text, e.line, e.after) for e in parse(response).edits]
    assert found == [
        ("a", "replace", "1", "2", None, None),
        ("a", "replace", "3", "", None, None),
        ("b", "insert", None, "x\n", 2, None),
        ("b", "insert", None, "y\n", None, "z"),
    ]


_TAGS = [
    "<think>",
    "</think>",
    "<edit a>",
    "<edit>",
    "</edit>",
    "<search>",
    "</search>",
    "<replace>",
    "</replace>",
    "<code>",
    "</code>",
    '<insert line="1">',
    "</insert>",
    "<run>",
    "</run>",
    "<finish>",
    "`",
    "```\n",
    "\n",
    " ",
    "x",
    "é",
    "\r\n",
]


@given(st.lists(st.sampled_from(_TAGS), max_size=30).map("".join))
def test_any_response_gives_exact_ranges_or_one_line(response: str) -> None:
    action = parse(response)
    assert (action.error is not None) == (action.kind == "invalid")
    files = {"a": "x\nx\n"}
    done = apply(action, files)
    assert done.error is None or (done.files == files and done.spans == ())
    last = 0
    for span in done.spans:
        assert response[span.start : span.end] == span.text
        assert last <= span.start <= span.end
        last = span.end


@pytest.mark.parametrize(
    "unit",
    [
        "<edit ",
        "<think>",
        "</think>",
        "<edit a>",
        "<search>",
        "</search>  ",
        "<code></code>",
        '<insert after="',
        "<run>",
        "<edit a><code>x</code></edit>",
        "<edit a><code>",
        "`<finish",
        "```\n",
        "<edit a><search>x</search><replace>",
    ],
)
def test_long_responses_take_linear_time(unit: str) -> None:
    parse("<edit a><code>" + unit * 40_000)
    parse(unit * 40_000)


# ---------------------------------------------------------------- applying


def test_search_must_identify_one_place() -> None:
    done = run("tick()\ntick()\ntick()\nstop()\n", ("tick()\ntick()\n", "tock()\n"))
    assert done.error is not None
    assert "2 places" in done.error
    assert done.files == {"f": "tick()\ntick()\ntick()\nstop()\n"}
    assert done.spans == ()
    done = run("debug = 1\nx = 0\ndebug = 1\n", ("debug = 1", "debug = 2"))
    assert done.error is not None
    assert "2 places (lines 1, 3)" in done.error
    done = run('label = “ok”\nn = 1\nlabel = "ok"\n', ('label = "ok"', 'label = "done"'))
    assert done.files == {"f": 'label = “ok”\nn = 1\nlabel = "done"\n'}
    assert [span.line for span in done.spans] == [2, 2]


CRLF = "a = 1\r\nb = 2\r\nc = 3\r\n"


@pytest.mark.parametrize(
    ("text", "search", "replace", "result"),
    [
        (CRLF, "b = 2", "b = 20", "a = 1\r\nb = 20\r\nc = 3\r\n"),
        (CRLF, "a = 1\nb = 2", "a = 5\nb = 6", "a = 5\r\nb = 6\r\nc = 3\r\n"),
        ("one\r\ntwo\nthree\r\n", "two", "TWO", "one\r\nTWO\nthree\r\n"),
        ("one\r\ntwo\nthree\r\n", "one\ntwo\nthree\n", "1\n2\n3\n4\n", "1\r\n2\n3\r\n4\r\n"),
        (CRLF, "b = 2", "b = 2\nd = 4", "a = 1\r\nb = 2\r\nd = 4\r\nc = 3\r\n"),
        ("a\nb\n", "a\r\nb", "c\r\nd", "c\nd\n"),  # a response with CRLF, a file without
        (CRLF, "b = 2\n", "", "a = 1\r\nc = 3\r\n"),
        ("a\nb", "b\n", "c\n", "a\nc"),  # no final line end before, none after
        ("a\r\nb", "b\n", "c\nd\n", "a\r\nc\r\nd"),
        ("a\n\tb\n", "\tb", r"\1\g<0>\n", "a\n" + r"\1\g<0>\n" + "\n"),  # nothing in a replacement is special
        ("a\rb\n", "b", "c", "a\rc\n"),
        ("x\na\r\nb\nx\na\nb\n", "a\nb", "c", "x\na\r\nb\nx\nc\n"),  # the exact place, though a loose one exists
    ],
)
def test_line_ends(text: str, search: str, replace: str, result: str) -> None:
    done = run(text, (search, replace))
    assert done.error is None
    assert done.files == {"f": result}


def test_not_found_and_empty_search() -> None:
    assert run("a\n", ("b", "c")).error == "f: the search text 'b' stands nowhere in the file"
    assert run("a\n", ("", "c")).error == "f: <search> is empty, the file is not: name the text to replace"
    assert run("", ("", "c\n")).files == {"f": "c\n"}
    assert apply(parse(edit("new", ("", "c\n"))), {}).files == {"new": "c\n"}
    assert apply(parse(edit("new", ("x", "c\n"))), {}).error == "new: no such file; <code> makes a new one"


def test_a_response_is_applied_whole_or_not_at_all() -> None:
    files = {"f": "a\nb\n"}
    done = run("a\nb\n", ("a", "A"), ("nowhere", "x"))
    assert done.files == files
    assert done.spans == ()
    assert run("a\nb\n", ("a", "A"), ("A\nb", "B")).files == {"f": "B\n"}  # each edit sees the one before
    assert files == {"f": "a\nb\n"}


@pytest.mark.parametrize(
    ("text", "insert", "result"),
    [
        ("a\nb\n", '<insert line="0">\nx\n</insert>', "x\na\nb\n"),
        ("a\nb\n", "<insert line=1>x</insert>", "a\nx\nb\n"),
        ("a\nb\n", '<insert line="2">\nx\n</insert>', "a\nb\nx\n"),
        ("a\nb", '<insert line="2">\nx\n</insert>', "a\nb\nx\n"),
        ("a\r\nb\r\n", '<insert line="1">\nx\ny\n</insert>', "a\r\nx\r\ny\r\nb\r\n"),
        ("a\nb\n", '<insert after="a">\nx\n</insert>', "a\nx\nb\n"),
        ("", '<insert line="0">\nx\n</insert>', "x\n"),
        ("a\nb\n", '<insert line="3">\nx\n</insert>', None),
        ("a\na\n", '<insert after="a">\nx\n</insert>', None),
        ("a\n", '<insert line="0"></insert>', None),
    ],
)
def test_insert(text: str, insert: str, result: str | None) -> None:
    done = apply(parse(f"<edit f>{insert}</edit>"), {"f": text})
    assert done.files == {"f": text if result is None else result}
    assert (done.error is None) == (result is not None)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../a",
        "a/../../b",
        "a/..",
        "~/x",
        "C:\\x",
        "\\\\host\\x",
        ".",
        "./",
        "//",
        "a\tb",
        "x" * 300,
        "f/below",
        "folder",
        "a\x7f",
    ],
)
def test_paths_stay_in_the_workspace(path: str) -> None:
    files = {"f": "1\n", "folder/g": "2\n"}
    done = apply(parse(f"<edit {path}><code>x</code></edit>"), files)
    assert done.error is not None
    assert done.files == files


def test_paths_have_one_form() -> None:
    done = apply(parse("<edit ./folder//g><code>x</code></edit>"), {"folder/g": ""})
    assert done.files == {"folder/g": "x"}
    assert done.spans[0].path == "folder/g"


@given(st.text(alphabet="ab\r\n", max_size=12), st.text(alphabet="ab\r\n", min_size=1, max_size=3), st.text(max_size=3))
def test_an_exact_place_is_replaced_and_nothing_else(text: str, search: str, replace: str) -> None:
    """Against the definition: a search without line ends, of all starting points."""
    if "\n" in search or "\r" in search or set("\r\n") & set(replace):
        return
    action = parse(edit("f", (search, replace)))
    if action.kind == "invalid":
        return
    done = apply(action, {"f": text})
    places = [i for i in range(len(text)) if text.startswith(search, i)]
    if len(places) == 1:
        assert done.files == {"f": text[: places[0]] + replace + text[places[0] + len(search) :]}
    else:
        assert done.error is not None
        assert done.files == {"f": text}


# ---------------------------------------------------------------- recorded steps


def test_what_credit_reads() -> None:
    response = edit("f", ("a", "b"))
    step = Step(response=response, files_before={"f": "a\n"})
    assert [(s.kind, s.text) for s in edit_spans(step)] == [("del", "a"), ("add", "b")]
    assert files_after(step) == {"f": "b\n"}
    refused = Step(response=response, files_before={"f": "aa\n"})
    assert edit_spans(refused) == ()
    assert files_after(refused) == {"f": "aa\n"}
    assert [s.text for s in edit_spans(Step(response=response))] == ["a", "b"]  # nothing to check against
    assert files_after(Step(response=response)) is None


def test_what_was_not_run_earns_nothing() -> None:
    response, files = edit("f", ("a", "b")), {"f": "a\n"}
    for step in (
        Step(response=response, files_before=files, finish_reason="length"),
        Step(response=response, files_before=files, action="invalid"),
        Step(response=response, files_before=files, edits=()),
        Step(response="<finish>", files_before=files),
        Step(response="nonsense", files_before=files),
    ):
        assert edit_spans(step) == ()
        assert files_after(step) == files


def test_recorded_values_win() -> None:
    span = edit_spans(Step(response=edit("f", ("a", "b"))))[1]
    step = Step(response=edit("f", ("a", "b")), edits=[span], files_after={"f": "z"}, files_before={"f": "a"})
    assert edit_spans(step) == (span,)
    assert files_after(step) == {"f": "z"}
    assert files_after(Step(response="told otherwise", edits=[span], files_before={"f": "a"})) is None
    assert apply(Action(kind="finish"), {"f": "a"}).files == {"f": "a"}
