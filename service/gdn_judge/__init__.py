"""The judge: holds a candidate's op against the contract. Trusted code.

Importing this package imports neither torch nor triton; the modules that need
them (``reference``, ``suites``, the candidate's side) are imported by name.
"""

JUDGE_VERSION = "0.1.0"
