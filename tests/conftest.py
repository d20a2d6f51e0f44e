"""Options that all tests share."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

# A shell that starts the tests in the background has them ignore Ctrl-C, and every command
# that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def own_user() -> None:
    """Skips where a candidate cannot have a user of its own: there nothing is passed."""
    asked = [sys.executable, "-I", "-m", "gdn_judge", "account"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False, cwd="/")
    if told.returncode != 0:
        pytest.skip((told.stdout or told.stderr).strip())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the golden tables whose figures changed on purpose",
    )


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Last of all: that the container tests were not run here, and why."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:  # a worker of xdist
        return
    for reason in container_skips(reporter.stats.get("skipped", [])):
        reporter.write_line(f"CONTAINER TESTS NOT RUN: {reason}", yellow=True)


def container_skips(skipped: list[pytest.TestReport]) -> list[str]:
    """Why tests in integration/docker were skipped, each reason once."""
    reasons = {
        report.longrepr[2].removeprefix("Skipped: ")
        for report in skipped
        if "integration/docker" in report.nodeid and isinstance(report.longrepr, tuple)
    }
    return sorted(reasons)
