"""The serving adapter: opt-in, declines with a reason, never hides the kernel's errors."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from gdn_kernels import op, platform
from gdn_kernels.adapters import sglang
from gdn_kernels.settings import SGLANG_BACKEND


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sglang, "_said", set())
    monkeypatch.delenv(SGLANG_BACKEND, raising=False)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SGLANG_BACKEND, "gdn_kernels")


@pytest.fixture
def on_a_gpu(asked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "launch_device", lambda: platform.LaunchDevice("cuda"))


def test_unset_imports_and_probes_nothing() -> None:
    code = (
        "import sys; from gdn_kernels.adapters import sglang;"
        "print(sglang.enabled(), sglang.available()[0], 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PATH": ""}
    )
    assert done.stdout.split() == ["False", "False", "False"]


def test_another_backend_is_declined(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SGLANG_BACKEND, "aiter")
    assert not sglang.enabled()
    assert "is 'aiter', this backend answers to 'gdn_kernels'" in caplog.text


def test_no_gpu_is_declined(asked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    device = platform.LaunchDevice("", "no GPU that Triton can launch on (none)")
    monkeypatch.setattr(platform, "launch_device", lambda: device)
    assert sglang.covered() == (False, "no GPU that Triton can launch on (none)")


def test_a_failing_gate_declines(asked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("driver gone")

    monkeypatch.setattr(platform, "launch_device", fail)
    assert sglang.available() == (False, "the gate failed: OSError: driver gone")


def test_a_failing_predicate_declines(on_a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*operands: object, quant_dtype: object) -> None:
        raise TypeError("ten operands")

    monkeypatch.setattr(op, "fused_gdn_decode_qkvz_supported", fail)
    assert sglang.covered() == (False, "the gate failed: TypeError: ten operands")


def test_the_predicate_decides(on_a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([(True, ""), (False, "A_log must be torch.float32, got torch.bfloat16")])
    seen = []

    def supported(*operands: object, quant_dtype: object) -> tuple[bool, str]:
        seen.append((operands, quant_dtype))
        return next(answers)

    monkeypatch.setattr(op, "fused_gdn_decode_qkvz_supported", supported)
    assert sglang.covered(1, 2, quant_dtype="fp8") == (True, "")
    assert sglang.covered(3)[1] == "A_log must be torch.float32, got torch.bfloat16"
    assert seen == [((1, 2), "fp8"), ((3,), None)]


def test_another_gate_activation_is_declined(on_a_gpu: None) -> None:
    taken, reason = sglang.covered(output_gate="sigmoid")
    assert not taken
    assert reason == "output gate 'sigmoid': the op gates with silu"


def test_each_reason_is_logged_once(on_a_gpu: None, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        sglang.covered(output_gate="sigmoid")
        sglang.covered(output_gate="gelu")
    declined = [r for r in caplog.records if "declined" in r.getMessage()]
    assert len(declined) == 2


def test_engages_once_and_passes_errors_through(
    on_a_gpu: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*operands: object, **options: object) -> None:
        raise RuntimeError("illegal memory access")

    monkeypatch.setattr(op, "fused_gdn_decode_qkvz", broken)
    monkeypatch.setattr(op, "explain", lambda *operands: "taken: T = 1")
    caplog.set_level(logging.INFO)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="illegal memory access"):
            sglang.run(1, scale=1.0)
    engaged = [r for r in caplog.records if "engaged" in r.getMessage()]
    assert [r.getMessage() for r in engaged] == ["fused GDN decode engaged: taken: T = 1"]
