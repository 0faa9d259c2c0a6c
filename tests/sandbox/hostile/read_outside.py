"""Reads what is not its own: passwords, expected outputs, the home of users, the package that grades."""

import glob
import json
import os
import sys

given = json.loads(sys.stdin.read())
paths = ["/etc/passwd", "/etc/shadow", "/etc/hostname", given["file"], given["tests"], "/var/log/dpkg.log"]
paths += glob.glob("/tmp/didpo-canary-*/*") + glob.glob("/*/.*rc") + glob.glob("/home/*/.*rc")
for path in paths:
    try:
        with open(path, "rb") as file:
            file.read(1)
        print("ESCAPED")
    except OSError:
        pass
try:
    os.listdir(os.path.dirname(given["file"]))
    print("ESCAPED")
except OSError:
    pass
