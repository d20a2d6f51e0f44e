"""Has a target compiled for a GPU that need not be here: code objects of one call."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gdn_judge import capture
from gdn_judge.candidate import Launch as Process
from gdn_judge.capture import Captured, Code, Launched
from gdn_judge.contract import OPERANDS, Heads, operand_shapes
from gdn_judge.emulated import EmulatedExecutor
from gdn_judge.errors import CandidateRaised, NotModelled, ProtocolViolation
from gdn_judge.operands import CallOptions, Operands, storage_dtype
from gdn_judge.remote import RemoteExecutor, request


class Compiler(EmulatedExecutor):
    """An emulator for gfx950 that also asks for the code objects of other GPUs."""

    def __init__(self, process: Process, notes: Sequence[str] = (), *, processes: int = 1) -> None:
        emulated = dataclasses.replace(process, device="gfx950-emulated")
        super().__init__(emulated, notes, processes=processes)
        self._process = process
        self._others: dict[str, tuple[RemoteExecutor, dict[str, Code]]] = {}

    def compiled(
        self, arch: str, heads: Heads, rows: int, options: CallOptions, deadline_s: float
    ) -> list[tuple[Launched, Code]]:
        """The launches of one call with these sizes, and their code objects.

        Raises CandidateError, NotModelled where the call cannot be captured.
        """
        operands = blank_operands(heads, rows)
        self.launched = []
        if arch == "gfx950":
            captured = self.capture(operands, options, (), deadline_s)
            self.pass_over(captured, options)
            codes = {key: code for key, (code, _) in self.programs.items()}
        else:
            captured, codes = self._other(arch, operands, options, deadline_s)
        launches = with_codes(captured, codes)
        self.launched = [code for _, code in launches]
        return launches

    def _other(
        self, arch: str, operands: Operands, options: CallOptions, deadline_s: float
    ) -> tuple[Captured, dict[str, Code]]:
        if arch not in self._others:
            process = dataclasses.replace(self._process, device=f"{arch}-captured")
            executor = RemoteExecutor(process)
            self._others[arch] = executor, {}
            executor.start()
        executor, codes = self._others[arch]
        message = request("capture", operands, options) | {"damages": []}
        try:
            reply = executor.candidate.ask(message, deadline_s=deadline_s)
        except CandidateRaised as error:
            if error.kind == "CannotCapture":
                raise NotModelled(f"the call cannot be captured: {error.message}") from error
            raise
        captured = capture.read(reply)
        codes |= captured.codes
        return captured, codes

    def log_tail(self) -> str:
        logs = [super().log_tail(), *(executor.log_tail() for executor, _ in self._others.values())]
        return "".join(logs)

    def close(self) -> list[int]:
        left = super().close()
        for executor, _ in self._others.values():
            left += executor.close()
        self._others.clear()
        return left


def with_codes(captured: Captured, codes: Mapping[str, Code]) -> list[tuple[Launched, Code]]:
    """The launches of a call beside their code objects, which travel once for all calls."""
    launches = [event for event in captured.events if isinstance(event, Launched)]
    for event in launches:
        if event.code not in codes:
            raise ProtocolViolation(f"the recording names an unknown code object {event.code[:16]}")
    return [(event, codes[event.code]) for event in launches]


def blank_operands(heads: Heads, rows: int) -> Operands:
    """Zeros of the right shapes: only the shapes are told to the target."""
    shapes = operand_shapes(heads, rows, rows + 1)
    arrays: dict[str, Any] = {
        name: np.zeros(shapes[name], storage_dtype(name)) for name in OPERANDS
    }
    return Operands(heads=heads, **arrays)
