"""Work done by several threads that start at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable


def together(count: int, work: Callable[[int], None]) -> None:
    """Runs `work` in threads that start at once; raises what one of them raised."""
    barrier, errors = threading.Barrier(count), list[BaseException]()

    def run(index: int) -> None:
        barrier.wait(timeout=20)
        try:
            work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]
