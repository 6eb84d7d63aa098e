"""A machine reached over SSH: log in, keep one connection and mend it, run commands, forward ports.

asyncssh is imported here alone; what it raises leaves as an error of ours.
"""
