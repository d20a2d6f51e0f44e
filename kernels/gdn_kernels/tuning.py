"""Which configuration runs for which batch: data in `tuning.json`, looked up here."""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json
from dataclasses import dataclass
from typing import Any

from gdn_kernels.contract import HEAD_DIM, HEAD_RATIO


class TuningError(ValueError):
    """The tuning table has no rule for a case, or a rule that no kernel can follow."""


@dataclass(frozen=True)
class Config:
    """How one launch is laid out.

    `heads` value heads and `rows` state rows of each go to one program;
    `rows` < V splits V over programs. The program takes its rows in `chunks`,
    `depth` of which (None: all) are on their way from memory at a time. `lanes`
    of a warp lie along K, the others along the rows (Gluon; the portable kernel
    leaves that to the compiler). `warps` and `max_registers` are the compiler's
    options.
    `pdl` overlaps the launch with the tail of the kernel before (Hopper). The
    programs of the first `early_mib` MiB of state then ask for theirs in L2
    before the kernel before has ended. With `ticket_first` the arrival at a
    ticket comes before the largest store.
    """

    kernel: str  # "triton" or "gluon"
    heads: int
    rows: int
    warps: int
    lanes: int = 8
    chunks: int = 1
    depth: int | None = None
    max_registers: int | None = None
    pdl: bool = False
    early_mib: int = 0
    ticket_first: bool = False

    def __post_init__(self) -> None:
        if self.kernel not in ("triton", "gluon"):
            raise TuningError(f"{self}: kernel must be triton or gluon")
        if self.heads not in (1, HEAD_RATIO) or not _divides(self.rows, HEAD_DIM):
            raise TuningError(f"{self}: heads must be 1 or {HEAD_RATIO}, rows must divide 128")
        if not _divides(self.warps, 32) or self.lanes not in (8, 16, 32):
            raise TuningError(f"{self}: warps must be a power of 2 up to 32, lanes 8, 16 or 32")
        if self.heads > 1 and self.rows != HEAD_DIM:
            raise TuningError(f"{self}: several heads a program only with all their rows")
        if not _divides(self.chunks, self.rows * self.heads) or self.chunks % self.heads:
            raise TuningError(f"{self}: chunks must divide the rows of each head")
        # else several warps hold the same rows: one could read what another has stored already
        if self.rows * self.heads // self.chunks < self._rows_at_a_time:
            raise TuningError(
                f"{self}: a chunk must have a row for each part of a warp that holds one, "
                f"{self._rows_at_a_time} at least"
            )
        if not self.chunks <= 2 * self.chunks_in_flight <= 2 * self.chunks:
            raise TuningError(f"{self}: depth must lie between half the chunks and all")
        if self.early_mib and not self.pdl:
            raise TuningError(f"{self}: early_mib needs pdl, there is no earlier otherwise")
        if self.kernel == "triton" and (self.pdl or self.ticket_first or self.lanes != 8):
            raise TuningError(f"{self}: pdl, ticket_first and lanes are of the Gluon kernel only")

    @property
    def _rows_at_a_time(self) -> int:
        """Rows that the warps hold in one register, of warps of 32; the portable kernel's of 64."""
        return self.warps * (2 if self.kernel == "triton" else 32 // self.lanes)

    @property
    def chunks_in_flight(self) -> int:
        return self.chunks if self.depth is None else self.depth

    @property
    def programs_per_group(self) -> int:
        """Programs that share one (token, key head)."""
        return (HEAD_RATIO // self.heads) * (HEAD_DIM // self.rows)

    @property
    def scratch_elements(self) -> int:
        """bf16 of scratch for each (token, key head)."""
        if self.kernel == "triton":
            own = self.programs_per_group * 2 * HEAD_DIM  # q and k of each program
            return own + 2 * HEAD_RATIO * HEAD_DIM  # v and core
        return HEAD_RATIO * HEAD_DIM if self.programs_per_group > 1 else 0  # core


def _divides(part: int, whole: int) -> bool:
    return part > 0 and whole % part == 0


@dataclass(frozen=True)
class Rule:
    """Up to `max_tokens` rows (None: any), with `key_heads` key heads, run `config`."""

    key_heads: int
    max_tokens: int | None
    config: Config


@functools.cache
def table() -> dict[str, list[Rule]]:
    """Architecture name -> its rules in order; "portable" serves those not named."""
    text = importlib.resources.files("gdn_kernels").joinpath("tuning.json").read_text()
    return {arch: [_rule(row) for row in rows] for arch, rows in json.loads(text)["rules"].items()}


def _rule(row: dict[str, Any]) -> Rule:
    return Rule(row["key_heads"], row["max_tokens"], Config(**row["config"]))


@functools.lru_cache(maxsize=4096)
def choose(arch: str, gluon: bool, key_heads: int, tokens: int) -> Config:
    """The configuration for `tokens` rows on `arch`; raises TuningError where no rule fits."""
    for rule in _rules(arch, gluon):
        if rule.key_heads == key_heads and (rule.max_tokens is None or tokens <= rule.max_tokens):
            return rule.config
    raise TuningError(f"tuning.json has no rule for {arch}, {key_heads} key heads, T = {tokens}")


def configurations(arch: str, gluon: bool, key_heads: int) -> list[Config]:
    """The distinct configurations that `choose` can give over all T."""
    found = [rule.config for rule in _rules(arch, gluon) if rule.key_heads == key_heads]
    return list(dict.fromkeys(found))


def _rules(arch: str, gluon: bool) -> list[Rule]:
    rules = table()
    return rules["portable" if arch not in rules or not gluon else arch]


def to_json(rules: dict[str, list[Rule]]) -> str:
    """The file's text for `rules`, one rule a line."""
    blocks = []
    for arch, rows in rules.items():
        lines = ",\n".join("      " + json.dumps(dataclasses.asdict(row)) for row in rows)
        blocks.append(f'    "{arch}": [\n{lines}\n    ]')
    return '{\n  "rules": {\n' + ",\n".join(blocks) + "\n  }\n}\n"
