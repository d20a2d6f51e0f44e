"""Version gate, light import, path choice."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gdn_kernels import platform


@pytest.mark.parametrize(
    ("version", "passes"),
    [
        ("3.8.0", True),
        ("3.10.0", True),
        ("4.0", True),
        ("3.8.0+git1", True),
        ("3.7.1", False),
        ("3.6", False),
        ("", False),
        ("main", False),
        ("3", False),
    ],
)
def test_versions_compare_as_numbers(version: str, passes: bool) -> None:
    assert platform.version_at_least(version, (3, 8)) is passes


def test_gluon_is_refused_below_its_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform.triton, "__version__", "3.7.1")
    platform.gluon_refusal.cache_clear()
    try:
        assert platform.gluon_refusal() == "Gluon needs Triton >= 3.8, this is '3.7.1'"
    finally:
        platform.gluon_refusal.cache_clear()


def test_gluon_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDN_KERNELS_GLUON", "0")
    platform.gluon_refusal.cache_clear()
    try:
        assert platform.gluon_refusal() == "switched off by GDN_KERNELS_GLUON=0"
    finally:
        platform.gluon_refusal.cache_clear()


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", **environment},
    )
    return done.stdout.strip()


def test_importing_the_package_loads_neither_torch_nor_triton() -> None:
    code = "import sys, gdn_kernels; print('torch' in sys.modules, 'triton' in sys.modules)"
    assert run(code) == "False False"


def test_the_op_imports_without_a_gpu_and_says_why_it_cannot_launch() -> None:
    code = (
        "from gdn_kernels import platform, fused_gdn_decode_qkvz;"
        "print(platform.launch_device().reason)"
    )
    assert run(code).startswith("no GPU that Triton can launch on")
