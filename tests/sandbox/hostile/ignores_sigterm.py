"""Ignores every signal that can be ignored, silences alarms, and loops."""

import contextlib
import signal

for number in range(1, 65):
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_IGN)
signal.setitimer(signal.ITIMER_REAL, 0)
while True:
    pass
