"""Takes memory without end, in one process."""

blocks = []
while True:
    blocks.append(bytearray(16 << 20))
