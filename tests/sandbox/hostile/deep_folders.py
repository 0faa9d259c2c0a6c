"""Leaves folders nested past the longest path, one unreadable."""

import os

os.mkdir("locked")
open("locked/file", "w").close()
os.chmod("locked", 0)
for _ in range(2000):
    os.mkdir("d")
    os.chdir("d")
print("done")
