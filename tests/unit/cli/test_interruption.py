"""Ctrl-C: the first asks to stop, the second interrupts, and afterwards the signals are
as they were."""

from __future__ import annotations

import os
import signal

import pytest

from tuner.cli.interruption import stop_on_signal


def test_the_first_signal_asks_the_second_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    notes: list[str] = []
    with stop_on_signal(notes.append) as stopping:
        assert not stopping()
        os.kill(os.getpid(), signal.SIGINT)
        assert stopping()
        assert len(notes) == 1
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_request_to_terminate_counts_too() -> None:
    with stop_on_signal(lambda text: None) as stopping:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping()
