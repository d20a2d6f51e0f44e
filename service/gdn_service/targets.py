"""Targets as the operator sets them: checked before they are stored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from gdn_judge.document import DeviceKind, Suite
from gdn_service.clock import now
from gdn_service.errors import InvalidRequest
from gdn_service.store.models import Target

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
_IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def new_target(
    *,
    name: str,
    repository: str,
    import_path: str,
    python_path: Sequence[str] = (),
    chain_import_path: str | None = None,
    default_device_kind: str | None = None,
    suites: Sequence[str] | None = None,
) -> Target:
    """A target ready to store, with every suite unless `suites` names some.

    Raises InvalidRequest naming the first wrong value.
    """
    suites = tuple(Suite) if suites is None else suites
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"{name!r} is not a target name: lower case, digits, '.', '_', '-'")
    if not repository or repository.startswith("-"):
        raise InvalidRequest(f"{repository!r} is not a path or URL of a git repository")
    for path in filter(None, (import_path, chain_import_path)):
        if not _IMPORT_PATH.fullmatch(path):
            raise InvalidRequest(f"{path!r} is not an import path; write package.module:attribute")
    for folder in python_path:
        parts = PurePosixPath(folder).parts
        if folder.startswith(("/", "-")) or ".." in parts:
            raise InvalidRequest(f"{folder!r} is not a folder inside the checkout")
    if default_device_kind is not None and default_device_kind not in set(DeviceKind):
        known = ", ".join(DeviceKind)
        raise InvalidRequest(f"{default_device_kind!r} is not a device kind; known: {known}")
    for suite in suites:
        if suite not in set(Suite):
            raise InvalidRequest(f"{suite!r} is not a suite; known: {', '.join(Suite)}")
    return Target(
        name=name,
        repository=repository,
        import_path=import_path,
        python_path=list(python_path),
        chain_import_path=chain_import_path,
        default_device_kind=default_device_kind,
        suites=[str(suite) for suite in Suite if suite in suites],
        created_at=now(),
    )
