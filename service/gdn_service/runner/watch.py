"""Looks at a device while a run is on it: someone who comes and goes is seen too."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Self

from gdn_service.clock import now
from gdn_service.errors import DeviceUnavailable
from gdn_service.runner.idle import describe
from gdn_service.runner.probe import Sample, Use
from gdn_service.runner.supervisor import descendants


@dataclass(frozen=True, kw_only=True)
class Border:
    """A look at a border of an arm. `moment` is "before" or "after" it; `why` names who else
    was on the device or why that cannot be told, "" where nobody was."""

    arm: str
    moment: str
    at: datetime
    why: str
    used_bytes: int | None


class Watch:
    """While entered and begun, `look` is called every `period_s` seconds and at each border.

    `visitor` names the first process that is none of the run's tree, or is "". A
    periodic look that fails is left out: the assertion after the run decides then.
    """

    def __init__(self, look: Callable[[], Sample], period_s: float) -> None:
        self._look = look
        self._period_s = period_s
        self._root = 0
        self._begun = threading.Event()
        self._asked: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name="gdn-watch", daemon=True)
        self.visitor = ""
        self.borders: list[Border] = []

    def begin(self, root: int) -> None:
        """`root`: pid of the run's tree as the host sees it; 0 if it has ended already."""
        self._root = root
        if root:
            self._begun.set()

    def border(self, arm: str, moment: str) -> None:
        """An arm begins ("before") or has ended ("after"): look now."""
        self._asked.put((arm, moment))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._asked.put(None)
        self._begun.set()
        self._thread.join()

    def _loop(self) -> None:
        self._begun.wait()
        while True:
            try:
                asked = self._asked.get(timeout=self._period_s)
            except queue.Empty:
                self._periodic()
                continue
            if asked is None:
                return
            self._at_border(*asked)

    def _periodic(self) -> None:
        try:
            found = stranger(self._look().uses, self._root)
        except DeviceUnavailable:
            return
        self.visitor = self.visitor or found

    def _at_border(self, arm: str, moment: str) -> None:
        used = None
        try:
            sample = self._look()
            used = sample.used
            why = stranger(sample.uses, self._root)
            self.visitor = self.visitor or why
        except DeviceUnavailable as error:
            why = f"its state is not available: {error}"
        self.borders.append(Border(arm=arm, moment=moment, at=now(), why=why, used_bytes=used))


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
