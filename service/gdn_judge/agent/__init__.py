"""The candidate's side: runs in the untrusted process, started with `python -I <this folder>`.

Trusted until the op is imported, and from then on only as far as the judge can
check the bytes. It imports nothing of the judge but the torch-free contract,
and takes the judge's modules away before the op is imported.

confine    what the process gives up first
wire       frames and file descriptors over a socket (both sides use it)
importing  the op from the checkout, and nothing else from there
staging    bytes from shared memory to tensors and back
launches   which kernels ran
capture    launches on a GPU that is not there, taken down
presented  CPU tensors that look like that GPU's
bodies     torch operators that the op registers in Python
threads    torch on Python threads that the op starts
damage     bad operands for the predicate
timing     graphs, events, profiles
server     one request after another
"""
