"""Which account the candidate runs under."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

from gdn_service.settings import base_environment

UNPRIVILEGED = "nobody"


def candidate_account(wanted: str, tree: Path) -> str:
    """`wanted`; else an unprivileged account if this process may take it and if it can
    run this Python and read `tree`; else "", the judge's own."""
    if wanted or os.geteuid() != 0:
        return wanted
    return UNPRIVILEGED if can_use(UNPRIVILEGED, tree) else ""


def can_use(account: str, tree: Path) -> bool:
    """Tried, not guessed: every folder on the way must let the account through."""
    try:
        entry = pwd.getpwnam(account)
        done = subprocess.run(
            [sys.executable, "-I", "-c", "import os, sys; os.listdir(sys.argv[1])", str(tree)],
            user=entry.pw_uid,
            group=entry.pw_gid,
            extra_groups=[],
            env=base_environment(),
            cwd="/",
            capture_output=True,
            timeout=30,
            check=False,
        )
    except (KeyError, OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
