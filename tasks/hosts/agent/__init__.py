"""What runs on the host itself: standard library alone, any Python from 3.8 on.

The package is copied into the run folder and called once per question: `agent COMMAND` with a
JSON object on standard input and one JSON object on standard output. Processes of ours are known
by a variable in their environment, never by name; a process is a pid with its start time, so
that a reused pid is never mistaken.
"""
