"""Executes gfx950 code objects on the CPU, from the assembly that Triton emits.

The flow: `assembly.parse` reads text and metadata into a `Program`;
`launch.run` lays out arguments and memory, builds the waves and steps them
with the semantics in `scalar`, `vector`, `lds` and `memory`; the checks live
where the events happen (`memory`, `lds`, `waits`, `races`).
Written from AMD's CDNA4 ISA document and LLVM's AMDGPU usage guide.
"""
