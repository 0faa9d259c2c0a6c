"""Takes memory without end, in several processes that each stay below the limit of one."""

import os
import time

for _ in range(8):
    if os.fork() == 0:
        break
block = bytearray(100 << 20)
for place in range(0, len(block), 4096):
    block[place] = 1
time.sleep(60)
print("ESCAPED")
