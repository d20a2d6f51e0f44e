"""No compiled form of the op for gfx950 has an instruction that the chip mis-executes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import triton

from gdn_judge.codeobject import errata
from gdn_kernels import ahead, launch, op, platform, tuning
from gdn_kernels.contract import KEY_HEADS
from gdn_kernels.platform import Architecture
from gdn_kernels.tuning import Config

GFX950 = Architecture("hip", "gfx950", 64)
VARIANTS = [
    (config, key_heads, fp8)
    for gluon in (True, False)
    for key_heads in KEY_HEADS
    for config in tuning.configurations("gfx950", gluon, key_heads)
    for fp8 in (True, False)
]
IDS = [
    f"{config.kernel} KH{key_heads} {config.heads}x{config.rows} {'fp8' if fp8 else 'bf16'}"
    for config, key_heads, fp8 in VARIANTS
]


@pytest.mark.parametrize(("config", "key_heads", "fp8"), VARIANTS, ids=IDS)
def test_no_variant_has_a_known_erratum(config: Config, key_heads: int, fp8: bool) -> None:
    kernel = ahead.compile_ahead(ahead.variant_for("gfx950", config, key_heads, fp8))
    assembly = kernel.asm["amdgcn"]
    assert [str(finding) for finding in errata.find("gfx950", assembly)] == []
    resources = ahead.amd_resources(assembly)
    assert resources["vgpr_spills"] == resources["sgpr_spills"] == resources["scratch"] == 0
    assert "s_swappc" not in assembly  # a function that was not inlined lacks the attribute


def test_without_the_option_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "errata_options", lambda arch: {})
    for gluon, count in ((True, 8), (False, 4)):
        config = tuning.choose("gfx950", gluon, 4, 8 if gluon else 1)
        kernel = ahead.compile_ahead(ahead.variant_for("gfx950", config, 4, True))
        (finding,) = errata.find("gfx950", kernel.asm["amdgcn"])
        assert finding.line.text.endswith("op_sel:[0,1,0]")
        assert finding.line.source.startswith("fused_")
        assert finding.count == count


def test_only_gfx950_is_compiled_without_packed_fp32() -> None:
    given = {arch: platform.errata_options(_architecture(arch)) for arch in ahead.TARGETS}
    wanted = {"llvm_fn_attrs": (("target-features", "-packed-fp32-ops"),)}
    assert {arch: options for arch, options in given.items() if options} == {"gfx950": wanted}
    config = tuning.choose("gfx942", False, 4, 8)
    kernel = ahead.compile_ahead(ahead.variant_for("gfx942", config, 4, True))
    assert "v_pk_fma_f32" in kernel.asm["amdgcn"]
    assert errata.find("gfx942", kernel.asm["amdgcn"]) == []


def _architecture(name: str) -> Architecture:
    target = ahead.TARGETS[name]
    return Architecture(target.backend, name, target.warp_size)


def test_tritons_own_feature_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address sanitizer asks for xnack by the attribute that the option replaces."""
    monkeypatch.setattr(triton.knobs.compilation, "enable_asan", True)
    (attribute,) = platform.errata_options(GFX950)["llvm_fn_attrs"]
    assert attribute == ("target-features", "-packed-fp32-ops,+xnack")


@pytest.fixture
def older_triton(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Triton 3.6 and 3.7: no such option, and a KeyError for a launch with it."""
    known = platform._hip_options() - {"llvm_fn_attrs"}
    monkeypatch.setattr(platform, "_hip_options", lambda: known)
    monkeypatch.setattr(platform.triton, "__version__", "3.7.1")
    platform.gluon_refusal.cache_clear()
    yield
    platform.gluon_refusal.cache_clear()


@pytest.mark.usefixtures("older_triton")
def test_an_older_triton_launches_and_says_so() -> None:
    variant = ahead.variant_for("gfx950", tuning.choose("gfx950", False, 4, 8), 4, True)
    with pytest.warns(RuntimeWarning, match=r"Triton 3\.7\.1 cannot compile without packed fp32"):
        assert launch.options(variant) == {"num_warps": variant.config.warps}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launch.options(ahead.variant_for("gfx942", variant.config, 4, True))
        launch.options(ahead.variant_for("sm90", variant.config, 4, True))


@pytest.mark.usefixtures("older_triton")
def test_explain_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op, "examine", lambda *given: op.Shape(8, 4, 8, 16))
    for arch, said in ((GFX950, True), (Architecture("hip", "gfx942", 64), False)):
        monkeypatch.setattr(platform, "architecture", lambda arch=arch: arch)
        lines = op.explain(*[None] * 10).splitlines()
        assert lines[1].startswith(f"path: triton on {arch.name}")
        assert any(line.startswith("beware: Triton 3.7.1 cannot") for line in lines) is said
