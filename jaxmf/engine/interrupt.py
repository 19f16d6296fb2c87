"""Ctrl-C and SIGTERM as requests: the first ends a run after the step in hand, the second at once.

Schedulers (Slurm, Kubernetes) send SIGTERM some seconds before they kill. A run takes it as Ctrl-C:
it writes its checkpoint and returns the draws so far, so that the program that called it can save
them. The command line then exits with the status 143, as one that died of the signal.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


class Interrupts:
    """While in force, the first signal is noted and the second ends the run at once.

    A run within another's reach joins it: ``with Interrupts() as stop:`` around several runs ends
    them all at the first signal.

    Attributes:
        requested: whether the run is to end.
        signal: the signal that asked for it, if one did.
    """

    def __init__(self) -> None:
        self.requested = False
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        outer = _in_force()
        if outer is not None:
            return outer
        # handlers can be set in the main thread only; one of somebody else's is left alone
        if threading.current_thread() is threading.main_thread():
            for signal_code, default in SIGNALS.items():
                if signal.getsignal(signal_code) is default:
                    self._before[signal_code] = signal.signal(signal_code, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for signal_code, before in self._before.items():
            signal.signal(signal_code, before)
        self._before = {}

    def insist(self) -> None:
        """Does what a second signal would, where the step in hand hangs."""
        self._note(signal.SIGINT if self.signal is None else self.signal, None)

    def _note(self, signal_code: int, frame: FrameType | None) -> None:
        if not self.requested:
            self.requested, self.signal = True, signal.Signals(signal_code)
        elif signal_code == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            signal.signal(signal_code, signal.SIG_DFL)
            os.kill(os.getpid(), signal_code)


def _in_force() -> Interrupts | None:
    """The Interrupts that this thread's signals go to; None where there is none."""
    if threading.current_thread() is not threading.main_thread():
        return None
    for signal_code in SIGNALS:
        owner = getattr(signal.getsignal(signal_code), "__self__", None)
        if isinstance(owner, Interrupts):
            return owner
    return None
