"""Kills or slows whatever it can reach: the grader, its own parent, everything of its user."""

import ctypes
import json
import os
import resource
import signal
import sys

given = json.loads(sys.stdin.read())
for pid in (given["pid"], os.getppid(), given["victim"], -given["victim"]):
    try:
        os.kill(pid, signal.SIGKILL)
        print("ESCAPED")
    except OSError:
        pass
try:
    os.kill(-1, 0)
    print("ESCAPED")
except OSError:
    pass
for pid in (given["pid"], os.getppid()):
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0))
        print("ESCAPED")
    except OSError:
        pass
    try:
        os.sched_setaffinity(pid, {0})
        print("ESCAPED")
    except OSError:
        pass
    libc = ctypes.CDLL(None, use_errno=True)
    for request in (16, 0x4206):  # attach, seize
        if libc.ptrace(request, pid, 0, 0) == 0:
            print("ESCAPED")
