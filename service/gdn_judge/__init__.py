"""The judge: holds a candidate's op against the contract. Trusted code.

Importing this package imports neither torch nor triton.

    cli -> prepare -> run                 from the command to the document
    run        plan, cases, verdict: read this first
    cases      which input configurations are judged
    correctness, determinism, roofline    the suites
    session    the executor of the moment, the secret, the clock
    execution  the seam: who runs the op
    remote     ... a candidate process (`candidate`, `agent`)
    emulated   ... the emulator (`emulator`, `capture`)
    contract, numerics, operands, reference   what is right
    bounds, truth             ... and how far a right kernel may lie from it
    generate, twists, damages                 inputs from the secret seed
    compare    what came back against what is right
    timed, bench, recurrence, yardsticks, telemetry   times and their evidence
    verdicts, document, schema, report        what is told
"""

JUDGE_VERSION = "0.2.0"
