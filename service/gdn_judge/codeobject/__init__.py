"""The audit of compiled kernels: what they use, and what changed against a baseline.

gfx950   registers, occupancy, widths, waits and instruction mix from the assembly
sm90     registers, spills and shared memory from ptxas
errata   known errata of chips and assemblers, with their sources
forms    the instruction forms that they name, in assembly text
suite    the cases of the codeobject suite
listing  `gdn-judge codeobject`
"""
