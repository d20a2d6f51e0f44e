"""Reads AMDGPU assembly text (the `amdgcn` stage of Triton) into a `Program`."""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass, field

from gdn_judge.emulator.errors import AssemblyError
from gdn_judge.emulator.metadata import KernelMetadata, read_metadata

VGPR = 0  # first index of v0 in the register file
AGPR = 256
SGPR = 512
VCC = SGPR + 106
M0 = SGPR + 124
EXEC = SGPR + 126
SCC = SGPR + 128
REGISTERS = SCC + 1

_NAMED = {
    "vcc": (VCC, 2),
    "vcc_lo": (VCC, 1),
    "vcc_hi": (VCC + 1, 1),
    "exec": (EXEC, 2),
    "exec_lo": (EXEC, 1),
    "exec_hi": (EXEC + 1, 1),
    "m0": (M0, 1),
    "flat_scratch": (SGPR + 102, 2),
    "flat_scratch_lo": (SGPR + 102, 1),
    "flat_scratch_hi": (SGPR + 103, 1),
    "scc": (SCC, 1),
    "src_scc": (SCC, 1),
}
_FILES = {"v": VGPR, "a": AGPR, "s": SGPR}
_REGISTER = re.compile(r"([vsa])(\d+)$")
_RANGE = re.compile(r"([vsa])\[(\d+):(\d+)\]$")
_INTEGER = re.compile(r"-?(0x[0-9a-fA-F]+|\d+)$")
_FLOAT = re.compile(r"-?\d+\.\d*(e[-+]?\d+)?$")
_MODIFIER = re.compile(r"([a-z_][a-z_0-9]*):(\[[^\]]*\]|\S+)$")
_FLAGS = frozenset(("offen", "idxen", "off", "sc0", "sc1", "nt", "glc", "lds", "gds", "clamp"))
_FLAGS |= {"bound_ctrl", "row_mirror", "row_half_mirror"}


@dataclass(frozen=True)
class Operand:
    """One operand of an instruction.

    kind: "reg" (index, count: position in the register file, dwords), "int"
    (value), "float" (value), "label" (text), "off", "hwreg" (value = (name,
    offset, width)). neg, absolute, sext are source modifiers.
    """

    kind: str
    index: int = 0
    count: int = 1
    value: float | int = 0
    text: str = ""
    neg: bool = False
    absolute: bool = False
    sext: bool = False
    hwreg: tuple[str, int, int] = ("", 0, 32)

    @property
    def is_vector(self) -> bool:
        return self.kind == "reg" and self.index < SGPR

    @property
    def registers(self) -> range:
        return range(self.index, self.index + self.count) if self.kind == "reg" else range(0)


@dataclass(frozen=True)
class Instruction:
    """One instruction: `name` without the encoding suffix, which is in `encoding`."""

    pc: int
    name: str
    encoding: str
    operands: tuple[Operand, ...]
    modifiers: dict[str, str]
    text: str
    line: int
    source: str


@dataclass(frozen=True, eq=False)
class Program:
    """A kernel: its instructions, where labels point, and its metadata.

    `entry` is where hardware with kernarg preloading starts: after the 256 byte
    prologue that loads the preloaded arguments for older firmware.
    """

    name: str
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    entry: int
    metadata: KernelMetadata
    text: str = field(repr=False, default="")

    @property
    def digest(self) -> str:
        """SHA-256 of what executes: instructions and metadata, without source lines."""
        lines = [ins.text for ins in self.instructions]
        lines += [f"{label} {pc}" for label, pc in self.labels.items() if "LBB" in label]
        return hashlib.sha256("\n".join([*lines, repr(self.metadata)]).encode()).hexdigest()


def parse(text: str, name: str | None = None) -> Program:
    """Read the kernel `name` (default: the only one) out of an assembly file.

    Raises AssemblyError when the text has no such kernel or cannot be read.
    """
    metadata = read_metadata(text, name)
    reader = _Reader(metadata.name)
    for number, line in enumerate(text.splitlines(), 1):
        reader.line(number, line)
    if not reader.instructions:
        raise AssemblyError(f"no instructions follow the label {metadata.name!r}")
    entry = 0
    if metadata.kernarg_preload_length:
        if reader.aligned_entry is None:
            raise AssemblyError("kernarg preloading without a 256 byte aligned second entry")
        entry = reader.aligned_entry
    return Program(
        metadata.name, tuple(reader.instructions), reader.labels, entry, metadata, text=text
    )


class _Reader:
    """Walks the lines of one file and keeps those of one function."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.inside = False
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.files: dict[str, str] = {}
        self.source = ""
        self.aligned_entry: int | None = None

    def line(self, number: int, raw: str) -> None:
        code = _strip_comment(raw).strip()
        if not code:
            return
        if code.endswith(":") and " " not in code:
            self._label(code[:-1])
        elif code.startswith("."):
            self._directive(code)
        elif self.inside:
            self.instructions.append(self._instruction(number, code))

    def _label(self, label: str) -> None:
        if label == self.kernel:
            self.inside = True
        if self.inside:
            self.labels[label] = len(self.instructions)
            if label.startswith(".Lfunc_end"):
                self.inside = False

    def _directive(self, code: str) -> None:
        word, _, rest = code.partition("\t") if "\t" in code else code.partition(" ")
        if word == ".file":
            number, *names = rest.split(maxsplit=1)
            self.files[number] = re.findall(r'"([^"]*)"', names[0] if names else "")[-1]
        elif not self.inside:
            return
        elif word == ".loc":
            file, line, *_ = rest.split()
            self.source = f"{self.files.get(file, '?')}:{line}" if line != "0" else ""
        elif word == ".p2align" and rest.split(",")[0].strip() == "8":
            self.aligned_entry = self.aligned_entry or len(self.instructions)

    def _instruction(self, number: int, code: str) -> Instruction:
        mnemonic, _, rest = code.replace("\t", " ").partition(" ")
        name, encoding = _split_encoding(mnemonic)
        try:
            operands, modifiers = _operands(name, rest)
        except ValueError as error:
            raise AssemblyError(f"line {number}: {code!r}: {error}") from error
        return Instruction(
            len(self.instructions), name, encoding, operands, modifiers, code, number, self.source
        )


def _strip_comment(line: str) -> str:
    return line.split(";", 1)[0] if ";" in line and '"' not in line else line


def _split_encoding(mnemonic: str) -> tuple[str, str]:
    for suffix in ("_e64_dpp", "_e32", "_e64", "_dpp", "_sdwa"):
        if mnemonic.endswith(suffix):
            return mnemonic[: -len(suffix)], suffix[1:]
    return mnemonic, ""


def _operands(name: str, rest: str) -> tuple[tuple[Operand, ...], dict[str, str]]:
    if name == "s_waitcnt":
        return (), _waitcnt(rest)
    operands: list[Operand] = []
    modifiers: dict[str, str] = {}
    for part in _split(rest):
        words = _words(part)
        for i, word in enumerate(words):
            flag = word in _FLAGS and not (word == "off" and i == 0)
            pair = None if flag else _MODIFIER.match(word)
            if flag:
                modifiers[word] = "1"
            elif pair and not word.startswith(("neg(", "hwreg(", "sext(")):
                modifiers[pair[1]] = pair[2]
            elif i == 0:
                operands.append(parse_operand(word))
            else:
                raise ValueError(f"the modifier {word!r} is unknown")
    return tuple(operands), modifiers


def _waitcnt(rest: str) -> dict[str, str]:
    found = dict(re.findall(r"(vmcnt|lgkmcnt|expcnt)\((\d+)\)", rest))
    if not found and (number := rest.strip()):
        code = int(number, 0)
        found = {
            "vmcnt": str((code & 15) | (code >> 14 & 3) << 4),
            "expcnt": str(code >> 4 & 7),
            "lgkmcnt": str(code >> 8 & 15),
        }
    return found


def _split(rest: str) -> list[str]:
    """Split at commas outside brackets and parentheses."""
    parts, depth, current = [], 0, ""
    for char in rest:
        depth += char in "[("
        depth -= char in "])"
        if char == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += char
    parts.append(current)
    return [p.strip() for p in parts if p.strip()]


def _words(part: str) -> list[str]:
    """Words of one operand and the modifiers after it; brackets and parentheses hold together."""
    words, depth, current = [], 0, ""
    for char in part:
        depth += char in "[("
        depth -= char in "])"
        if char == " " and depth == 0:
            words.append(current)
            current = ""
        else:
            current += char
    words.append(current)
    return [w for w in words if w]


def parse_operand(word: str) -> Operand:
    """Read one operand; ValueError names what cannot be read."""
    from dataclasses import replace

    if match := re.match(r"(neg|abs|sext)\((.*)\)$", word):
        inner = parse_operand(match[2])
        key = {"neg": "neg", "abs": "absolute", "sext": "sext"}[match[1]]
        return replace(inner, **{key: True})  # type: ignore[arg-type]
    if word.startswith("|") and word.endswith("|"):
        return replace(parse_operand(word[1:-1]), absolute=True)
    if word.startswith("-") and not _INTEGER.match(word) and not _FLOAT.match(word):
        return replace(parse_operand(word[1:]), neg=True)
    if match := _REGISTER.match(word):
        return Operand("reg", _FILES[match[1]] + int(match[2]), 1, text=word)
    if match := _RANGE.match(word):
        low, high = int(match[2]), int(match[3])
        return Operand("reg", _FILES[match[1]] + low, high - low + 1, text=word)
    if word in _NAMED:
        index, count = _NAMED[word]
        return Operand("reg", index, count, text=word)
    if _INTEGER.match(word):
        return Operand("int", value=int(word, 0), text=word)
    if _FLOAT.match(word):
        return Operand("float", value=float(word), text=word)
    if word == "off":
        return Operand("off", text=word)
    if word.startswith("hwreg("):
        name, *numbers = (p.strip() for p in word[6:-1].split(","))
        low, width = (int(n, 0) for n in numbers) if numbers else (0, 32)
        return Operand("hwreg", text=word, hwreg=(name, low, width))
    if re.match(r"[.A-Za-z_][\w.$]*(\([^)]*\))?$", word):
        return Operand("label", text=word)
    raise ValueError(f"the operand {word!r} is not understood")


def float_bits(value: float) -> int:
    """The float32 bits of an inline constant such as 1.0 or -0.5."""
    bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return bits
