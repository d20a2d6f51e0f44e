"""Errors of the judge.

JudgeError
  ├─ UsageError         the request cannot be understood (exit code 2)
  ├─ HostError          the machine cannot run it: no device, no user (exit code 5)
  ├─ IllegalIndices     an index vector the contract forbids
  ├─ Terminated         SIGTERM arrived: the document becomes partial
  └─ CandidateError     what the candidate did; each kind has its own outcome
       ├─ CandidateRaised     the op raised something other than a refusal
       ├─ CandidateRefused    the op raised ValueError
       ├─ CandidateCrashed    the process died: a signal, or an early exit
       ├─ CandidateTimedOut   no answer before the deadline
       ├─ CandidateFaulted    a kernel does what hardware leaves undefined (emulator)
       ├─ NotModelled         the emulator cannot judge it: not the candidate's fault
       ├─ CandidateOverLimit  it took more memory, disk or processes than it may
       └─ ProtocolViolation   it answered with bytes that are no frame
"""

from __future__ import annotations

from gdn_judge.document import Outcome


class JudgeError(Exception):
    """Base of all errors of the judge."""


class UsageError(JudgeError):
    """The request cannot be understood."""


class HostError(JudgeError):
    """This machine cannot run what was asked."""


class IllegalIndices(JudgeError, ValueError):
    """An index vector that the contract forbids."""


class Terminated(JudgeError):
    """The run was told to stop."""


class CandidateError(JudgeError):
    """The candidate did not give an answer; `outcome` says in which way."""

    outcome = Outcome.CRASHED

    @property
    def fatal(self) -> bool:
        """Whether the candidate process must be replaced before the next case."""
        return True


class CandidateRaised(CandidateError):
    """The op raised. `kind` is the exception's class name."""

    outcome = Outcome.RAISED

    def __init__(self, kind: str, message: str, traceback: str = "") -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message
        self.traceback = traceback

    @property
    def fatal(self) -> bool:
        return False


class CandidateRefused(CandidateRaised):
    """The op raised ValueError, the documented refusal."""

    outcome = Outcome.REFUSED


class CandidateCrashed(CandidateError):
    """The candidate process ended without an answer."""


class CandidateTimedOut(CandidateError):
    """The candidate gave no answer before the deadline."""

    outcome = Outcome.TIMED_OUT


class CandidateFaulted(CandidateError):
    """An emulated kernel raced, left its memory, or used what nobody wrote."""

    outcome = Outcome.FAILED

    @property
    def fatal(self) -> bool:
        return False


class NotModelled(CandidateError):
    """The emulator cannot follow the call; the message says what is missing."""

    outcome = Outcome.NOT_RUN

    @property
    def fatal(self) -> bool:
        return False


class CandidateOverLimit(CandidateCrashed):
    """The candidate exceeded a quota and was ended."""


class ProtocolViolation(CandidateError):
    """The candidate answered with something that is no frame of the protocol."""

    outcome = Outcome.PROTOCOL_ERROR
