"""The program that a stack's own interpreter runs to tell what it consists of.

Standard library alone, Python 3.8 and up; nothing of it is written to the host's disk.
"""
