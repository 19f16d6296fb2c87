"""Ctrl-C as a request: the first one ends the run after the current chunk, the second at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """While in place, the first interrupt is noted and the next raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.requested = False
        self._before: Any = None
        self._installed = False

    def __enter__(self) -> Interrupts:
        # handlers can be set in the main thread only; one of somebody else's is left alone
        ours = threading.current_thread() is threading.main_thread()
        if ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._note)
            self._installed = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
