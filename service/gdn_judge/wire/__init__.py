"""What the judge, the service and the document agree on. Standard library only.

names      open sets of names
devices    the table of device kinds
suites     the table of suites
"""
