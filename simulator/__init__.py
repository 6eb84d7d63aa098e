"""A pretend GPU host: an SGLang look-alike server, its devices, its tools and its faults.

Needs the Python standard library alone and imports nothing of this project: it is started as
programs (`python -m simulator.host`, `python -m simulator.launch_server`, `python -m
simulator.truth`), so nothing of it can leak into production.
"""
