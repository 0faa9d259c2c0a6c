"""Shell commands of an agent."""

from __future__ import annotations

import pytest

from didpo.errors import UserError
from didpo.sandbox import Limits, Sandbox, Verdict

QUICK = Limits(cpu_s=3.0, wall_s=4.0, processes=16, output_bytes=2000)


def test_run_command(sandbox: Sandbox) -> None:
    files = {"a/b.py": "print('hi')\n", "x.txt": "1\n", "crlf.txt": "a\r\nb"}
    result = sandbox.run_command(files, "python3 a/b.py; echo err >&2; echo 2 >> x.txt; rm crlf.txt; (exit 3)")
    assert (result.output, result.exit_code, result.verdict) == ("hi\nerr\n", 3, Verdict.RUNTIME_ERROR)
    assert result.files == {"a/b.py": "print('hi')\n", "x.txt": "1\n2\n"}
    assert sandbox.run_command(files, "true").files == files  # a fresh copy, byte for byte


def test_output_is_bounded_with_a_notice(sandbox: Sandbox) -> None:
    result = sandbox.run_command({}, "yes", limits=QUICK)
    assert result.verdict is Verdict.OUTPUT_LIMIT
    assert len(result.output) < 2200
    assert "[output cut off after 2000 bytes]" in result.output


def test_shell_keeps_folder_and_files_but_no_process(sandbox: Sandbox) -> None:
    with sandbox.shell({"a.txt": "x\n"}, limits=QUICK) as shell:
        shell.run("mkdir d && cd d && echo 1 > f && sleep 200.77 &")
        assert shell.run("mkdir -p d; cd d; echo 1 > f; sleep 200.77 & echo ok").output == "ok\n"
        assert shell.run("basename $(pwd); cat f").output == "d\n1\n"
        shell.write({"d/g": "2\n"})
        assert shell.run("cat g ../a.txt").output == "2\nx\n"
        assert shell.files == {"a.txt": "x\n", "d/f": "1\n", "d/g": "2\n"}
        stopped = shell.run("while :; do :; done", limits=Limits(cpu_s=0.3, wall_s=3.0, processes=8))
        assert stopped.verdict is Verdict.TIMEOUT
        assert "[stopped: over 0.3 s of CPU time]" in stopped.output
        assert shell.run("exit 4").exit_code == 4
        assert shell.run("cd ..; rm -rf d; basename $(pwd)").output == "work\n"
        assert shell.run("cd /no/such/folder").exit_code != 0
        assert shell.run("cat a.txt").output == "x\n"
    with pytest.raises(UserError, match="closed"):
        shell.run("true")


def test_shells_do_not_share_anything(best: Sandbox) -> None:
    with best.shell({}) as one, best.shell({}) as two:
        one.run("echo secret > f; echo secret > $TMPDIR/g; echo secret > /tmp/didpo-test-h")
        assert one.run("cat f").output == "secret\n"
        assert two.run("cat f $TMPDIR/g /tmp/didpo-test-h 2>/dev/null").output == ""


def test_mistakes(best: Sandbox) -> None:
    with pytest.raises(UserError, match="NUL"):
        best.run_command({}, "echo \0")
    with pytest.raises(UserError, match="inside the workspace"):
        best.run_command({"../x": ""}, "true")
