"""Looks at a device while a run is on it: someone who comes and goes is seen too."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from gdn_service.errors import DeviceUnavailable
from gdn_service.runner.idle import describe
from gdn_service.runner.probe import Use
from gdn_service.runner.supervisor import descendants


class Watch:
    """While entered and begun, `look` is called every `period_s` seconds.

    `visitor` names the first process that is none of the run's tree, or is "". A
    look that fails is left out: the assertion after the run decides then.
    """

    def __init__(self, look: Callable[[], Sequence[Use]], period_s: float) -> None:
        self._look = look
        self._period_s = period_s
        self._root = 0
        self._begun = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="gdn-watch", daemon=True)
        self.visitor = ""

    def begin(self, root: int) -> None:
        """`root`: pid of the run's tree as the host sees it; 0 if it has ended already."""
        self._root = root
        if root:
            self._begun.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._begun.set()
        self._thread.join()

    def _loop(self) -> None:
        self._begun.wait()
        while not self._done.wait(self._period_s):
            try:
                self.visitor = stranger(self._look(), self._root)
            except DeviceUnavailable:
                continue
            if self.visitor:
                return


def stranger(uses: Sequence[Use], root: int) -> str:
    """The first process of `uses` outside the tree of `root`, in words, or "".

    The tree is read after the device: a process of ours that is listed there is
    then in the tree, or has ended. A pid that this host does not show cannot be told
    from one of ours in another namespace, and is left to the assertion after the run.
    """
    ours = {root, *descendants(root)}
    for use in uses:
        if use.counts and use.pid not in ours and os.path.exists(f"/proc/{use.pid}"):
            return describe(use)
    return ""
