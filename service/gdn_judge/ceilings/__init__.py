"""The judge's own yardsticks on a device, measured in a trusted process of its own.

It runs before and after the candidate, never beside it, and knows nothing of it.
Started with `python -I <this folder> DEVICE [--brief]`; prints one JSON object:
what the device is, its canary, and, unless brief, its ceilings.
"""
