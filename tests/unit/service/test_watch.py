from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from gdn_service.errors import DeviceUnavailable
from gdn_service.runner.probe import Sample, Use
from gdn_service.runner.watch import Watch, stranger

GIB = 1 << 30


@pytest.fixture
def tree() -> Iterator[tuple[int, int]]:
    """Pids of a process and of its child."""
    code = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        yield parent.pid, child
        os.kill(child, 9)


def use(pid: int, used: int = GIB) -> Use:
    return Use(pid=pid, command="python", used=used)


def test_the_runs_own_tree_is_no_stranger(tree: tuple[int, int]) -> None:
    root, child = tree
    assert stranger([use(root), use(child)], root) == ""
    assert stranger([use(root), use(os.getpid())], root) == (f"pid {os.getpid()} (python, 1.0 GiB)")


def test_a_monitor_and_an_invisible_pid_are_left_out(tree: tuple[int, int]) -> None:
    root, _child = tree
    assert stranger([use(os.getpid(), used=0), use(2**22 + 1)], root) == ""


def test_the_first_visitor_is_remembered_and_a_failing_look_is_left_out(
    tree: tuple[int, int],
) -> None:
    seen = threading.Event()
    answers: list[list[Use] | None] = [[], None, [use(os.getpid())], []]

    def look() -> Sample:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if len(answers) == 1:
            seen.set()
        if answer is None:
            raise DeviceUnavailable("the driver is slow")
        return Sample(uses=tuple(answer))

    with Watch(look, 0.01) as watch:
        watch.begin(tree[0])
        assert seen.wait(20)
    assert watch.visitor == f"pid {os.getpid()} (python, 1.0 GiB)"


def test_a_watch_that_never_begins_ends(tree: tuple[int, int]) -> None:
    with Watch(lambda: Sample(uses=(use(os.getpid()),)), 0.01) as watch:
        watch.begin(0)
    assert watch.visitor == ""


def test_the_borders_of_an_arm_are_looked_at_when_they_are_reached(tree: tuple[int, int]) -> None:
    samples = [
        Sample(used=GIB),
        Sample(used=3 * GIB, uses=(use(tree[0]), use(os.getpid()))),
    ]
    with Watch(lambda: samples.pop(0), 600) as watch:
        watch.begin(tree[0])
        watch.border("candidate", "before")
        watch.border("candidate", "after")
    stranger = f"pid {os.getpid()} (python, 1.0 GiB)"
    assert [(b.arm, b.moment, b.why, b.used_bytes) for b in watch.borders] == [
        ("candidate", "before", "", GIB),
        ("candidate", "after", stranger, 3 * GIB),
    ]
    assert watch.visitor == stranger


def test_a_border_that_cannot_be_looked_at_says_so(tree: tuple[int, int]) -> None:
    def look() -> Sample:
        raise DeviceUnavailable("the driver is slow")

    with Watch(look, 600) as watch:
        watch.begin(tree[0])
        watch.border("candidate", "before")
    assert [b.why for b in watch.borders] == ["its state is not available: the driver is slow"]
    assert watch.visitor == ""
