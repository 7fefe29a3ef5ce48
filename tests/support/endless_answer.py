"""A confined program that says which process it is, and never answers."""

from __future__ import annotations

import os
import time

from tuner.models.process import ConfinedRequest, serve


def _answer(request: ConfinedRequest, payload: memoryview) -> bytes:
    os.write(request["pipe"], f"{os.getpid()}\n".encode())
    while True:
        time.sleep(1.0)


if __name__ == "__main__":
    serve(_answer)
