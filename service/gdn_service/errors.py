"""Everything the service raises on purpose.

    ServiceError
      ├─ SettingsError            settings that contradict each other
      ├─ DatabaseUnavailable      no connection to the database
      ├─ DatabaseNewer            a newer service has migrated the database
      ├─ RequestError             told to the caller as problem+json; carries its HTTP status
      │    ├─ Unauthorised        401
      │    ├─ Forbidden           403
      │    ├─ NotFound            404
      │    │    ├─ UnknownCommit
      │    │    └─ UnknownTarget
      │    ├─ Conflict            409
      │    │    ├─ DeviceKindNotServed
      │    │    └─ NotCancellable
      │    ├─ PayloadTooLarge     413
      │    └─ InvalidRequest      422
      │         ├─ AmbiguousCommit
      │         ├─ UnknownSuite
      │         ├─ UnknownDeviceKind
      │         ├─ BundleInvalid
      │         └─ IdempotencyMismatch
      ├─ GitError                 a git process failed
      │    ├─ GitOverLimit        what it read needs more memory, time or room than git may take
      │    └─ MirrorError         the target's repository cannot be reached
      ├─ TreeError                the commit's tree cannot be exported
      ├─ RunnerError              the judge process could not be run or left no valid document
      ├─ DeviceError
      │    ├─ DeviceBusy          someone else holds it; names the offenders
      │    ├─ DeviceUnavailable   it cannot be seen, or is quarantined
      │    └─ EngineError         the container engine cannot be reached or refuses
      ├─ IllegalTransition        a state change that the transition table does not have
      └─ WorkerNameTaken          another live worker uses the same name

`WorkerStopping` derives from BaseException: it unwinds a step without the step
being recorded, so that the job goes on after the restart.
"""

from __future__ import annotations

from typing import Any, ClassVar


class ServiceError(Exception):
    """Base of all errors of the service."""


class SettingsError(ServiceError):
    """The settings contradict each other."""


class DatabaseUnavailable(ServiceError):
    """There is no connection to the database."""


class DatabaseNewer(ServiceError):
    """The database has a revision that this service does not know."""


class RequestError(ServiceError):
    """The request cannot be served; `str()` says why and what would be right."""

    status: ClassVar[int] = 400
    code: ClassVar[str] = "invalid_request"
    title: ClassVar[str] = "Invalid request"

    def __init__(self, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.extra = extra


class Unauthorised(RequestError):
    status = 401
    code = "unauthorised"
    title = "Not authorised"


class Forbidden(RequestError):
    status = 403
    code = "forbidden"
    title = "Scope too small"


class NotFound(RequestError):
    status = 404
    code = "not_found"
    title = "Not found"


class UnknownCommit(NotFound):
    code = "unknown_commit"
    title = "Unknown commit"


class UnknownTarget(NotFound):
    code = "unknown_target"
    title = "Unknown target"


class Conflict(RequestError):
    status = 409
    code = "conflict"
    title = "Conflict"


class DeviceKindNotServed(Conflict):
    """The device kind exists, but no worker serves it now."""

    code = "device_kind_not_served"
    title = "Device kind not served"


class NotCancellable(Conflict):
    code = "not_cancellable"
    title = "Job is already finished"


class PayloadTooLarge(RequestError):
    status = 413
    code = "payload_too_large"
    title = "Payload too large"


class InvalidRequest(RequestError):
    status = 422


class AmbiguousCommit(InvalidRequest):
    code = "ambiguous_commit"
    title = "Ambiguous commit"


class UnknownSuite(InvalidRequest):
    code = "unknown_suite"
    title = "Unknown suite"


class UnknownDeviceKind(InvalidRequest):
    code = "unknown_device_kind"
    title = "Unknown device kind"


class BundleInvalid(InvalidRequest):
    code = "bundle_invalid"
    title = "Invalid bundle"


class IdempotencyMismatch(InvalidRequest):
    code = "idempotency_mismatch"
    title = "Idempotency-Key was used for another request"


class GitError(ServiceError):
    """A git process failed; the message holds its last words."""


class GitOverLimit(GitError):
    """What git was given to read takes more than git may; the message names the limit."""


class MirrorError(GitError):
    """The target's repository cannot be reached."""


class TreeError(ServiceError):
    """The commit's tree cannot be exported."""


class RunnerError(ServiceError):
    """The judge process could not be run or left no valid document."""


class DeviceError(ServiceError):
    """A device cannot be used."""


class DeviceBusy(DeviceError):
    """Someone else uses the device; the message names them."""


class DeviceUnavailable(DeviceError):
    """The device cannot be seen, or is quarantined."""


class EngineError(DeviceError):
    """The host's container engine cannot be reached, or refuses."""


class IllegalTransition(ServiceError):
    """A state change that the transition table does not have."""


class WorkerNameTaken(ServiceError):
    """Another live worker uses the same name on the same database."""


class WorkerStopping(BaseException):
    """The worker is going down; the step is left unfinished and runs again later."""
