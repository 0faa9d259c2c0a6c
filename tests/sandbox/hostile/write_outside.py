"""Writes wherever it can outside its own folder."""

import json
import os
import sys

given = json.loads(sys.stdin.read())
for path in (
    given["target"],
    "/etc/x",
    "/usr/x",
    "/bin/x",
    "/dev/x",
    "/x",
    os.path.dirname(os.__file__) + "/x.py",
    "/var/tmp/x",
):
    try:
        with open(path, "w") as file:
            file.write("x")
        print("ESCAPED")
    except OSError:
        pass
