"""The judge's own yardsticks on a device, measured in a trusted process of its own.

It runs before and after the candidate's timed windows, never beside them, and
knows nothing of the candidate. Started with `python -I <this folder> DEVICE
[--facts]`; prints one JSON object.
"""
