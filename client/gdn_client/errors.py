"""Everything the client raises on purpose.

    ClientError                    exit code
      ├─ UsageError                2   the command line, or a value in it
      │    ├─ SettingError             a configuration file or variable
      │    ├─ UnknownName              target, suite, device kind or job; names the known ones
      │    ├─ AmbiguousCommit          names the candidates
      │    └─ NotCancellable
      ├─ WaitTimeout               3   --timeout ran out; the job goes on
      ├─ NotAuthorised             4
      ├─ InfrastructureError       5
      │    ├─ NoWorker                 the time to wait ran out, and no host could take the job
      │    ├─ ServerUnreachable
      │    ├─ ServerFailure            the server answered 5xx or 429
      │    └─ UnexpectedAnswer         not the interface this client speaks
      ├─ CommitUnavailable         6
      │    ├─ NotARepository
      │    ├─ GitFailure
      │    └─ BundleRefused
      └─ Interrupted             130

Each message is a sentence about what is wrong; `remedy` says what to do about it.
"""

from __future__ import annotations

from gdn_client.exit_codes import ExitCode


class ClientError(Exception):
    """What is wrong, and in `remedy` what to do; `exit_code` is the process's."""

    exit_code = ExitCode.INFRASTRUCTURE

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class UsageError(ClientError):
    exit_code = ExitCode.USAGE


class SettingError(UsageError):
    pass


class UnknownName(UsageError):
    pass


class AmbiguousCommit(UsageError):
    pass


class NotCancellable(UsageError):
    pass


class WaitTimeout(ClientError):
    exit_code = ExitCode.STOPPED


class NotAuthorised(ClientError):
    exit_code = ExitCode.NOT_AUTHORISED


class InfrastructureError(ClientError):
    exit_code = ExitCode.INFRASTRUCTURE


class NoWorker(InfrastructureError):
    pass


class ServerUnreachable(InfrastructureError):
    pass


class ServerFailure(InfrastructureError):
    def __init__(self, message: str, *, status: int, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.status = status


class UnexpectedAnswer(InfrastructureError):
    pass


class CommitUnavailable(ClientError):
    exit_code = ExitCode.COMMIT_UNAVAILABLE


class NotARepository(CommitUnavailable):
    pass


class GitFailure(CommitUnavailable):
    pass


class BundleRefused(CommitUnavailable):
    pass


class Interrupted(ClientError):
    exit_code = ExitCode.INTERRUPTED
