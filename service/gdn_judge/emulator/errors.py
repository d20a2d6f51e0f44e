"""What can go wrong when a code object is emulated.

EmulatorError
  ├─ AssemblyError            the text is not assembly that this emulator reads
  ├─ UnsupportedInstruction   an instruction or modifier that is not modelled (never guessed)
  ├─ LaunchError              grid or arguments do not fit the kernel's metadata
  ├─ OutOfTime                the deadline of the launch has passed
  ├─ WorkerDied               a process that emulated some workgroups was ended from outside
  └─ KernelFault              the kernel does something that hardware leaves undefined
       ├─ OutOfBounds         an access outside the buffers of the launch, or of LDS
       ├─ Uninitialised       a value that nobody wrote decides an address, a store or a branch
       ├─ MissingWait         a register used while the load that fills it is in flight
       ├─ LdsRace             two waves touch one LDS byte without a barrier between them
       ├─ GlobalRace          two workgroups touch one byte of memory, one writes, unordered
       ├─ DivergentBarrier    waves of a workgroup wait at different barriers
       └─ NoProgress          the instruction budget is spent (an endless loop or a spin)
"""

from __future__ import annotations

from dataclasses import dataclass


class EmulatorError(Exception):
    """The emulation of a code object ended without a result."""


class AssemblyError(EmulatorError):
    """The assembly text or its metadata cannot be read."""


class UnsupportedInstruction(EmulatorError):
    """The instruction, or one of its modifiers, is not modelled."""


class LaunchError(EmulatorError):
    """The launch does not fit the kernel: its arguments, its grid, or its resources."""


class OutOfTime(EmulatorError):
    """The deadline of the launch has passed."""


class WorkerDied(EmulatorError):
    """A process of the emulator was ended from outside, for instance for its memory."""


@dataclass(frozen=True)
class Site:
    """Where in a launch something happened; `source` is "file:line" or empty."""

    kernel: str
    workgroup: int
    wave: int
    pc: int
    text: str
    line: int
    source: str = ""

    def __str__(self) -> str:
        at = f" ({self.source})" if self.source else ""
        return (
            f"kernel {self.kernel}, workgroup {self.workgroup}, wave {self.wave}, "
            f"instruction {self.pc} (assembly line {self.line}){at}: {self.text}"
        )


class KernelFault(EmulatorError):
    """The kernel is wrong in a way that a GPU would not report."""

    def __init__(self, what: str, site: Site) -> None:
        super().__init__(f"{what}; {site}")
        self.what = what
        self.site = site


class OutOfBounds(KernelFault):
    """An access outside the memory that belongs to the launch."""


class Uninitialised(KernelFault):
    """A value that nobody wrote reached an address, a store, a branch or EXEC."""


class MissingWait(KernelFault):
    """A register was used before an s_waitcnt covered the load that fills it."""


class LdsRace(KernelFault):
    """Two waves of a workgroup touch one LDS byte, one writes, and no barrier orders them."""


class GlobalRace(KernelFault):
    """Two workgroups touch one byte, one writes, and nothing orders them."""


class DivergentBarrier(KernelFault):
    """Not every wave of the workgroup arrives at the same barrier."""


class NoProgress(KernelFault):
    """The instruction budget of the launch is spent."""
