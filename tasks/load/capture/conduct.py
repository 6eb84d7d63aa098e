"""Conduct a load on a machine of its own: start its processes, pass on what they tell.

What `tasks.load.workers` does on the worker, detached: the jobs lie in a folder as `job-N`, what
is told goes to the standard output, a line each, and a file `stop` ends the load with its reason.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time

BOOT = "import sys; sys.path.append(sys.argv[1]); from capture.program import main; main()"
START_NS = 20_000_000
LOOK_S = 0.1


class Player:
    """One process of the load."""

    def __init__(self, folder: str, number: int) -> None:
        self.number = number
        self.errors = os.path.join(folder, f"worker-{number}.err")
        self.rest = b""
        self.ended = False
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", "-c", BOOT, package],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    @property
    def outlet(self) -> int:
        """The descriptor from which it is heard."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def say(self, words: bytes) -> None:
        """Tell it something; one that is gone is found out where its answers are read."""
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(words)
            self.process.stdin.flush()
        except OSError:
            return

    def hear(self) -> list[dict[str, object]]:
        """What it has told since the last time; what a crash left is told in its place."""
        data = os.read(self.outlet, 1 << 16)
        *lines, self.rest = (self.rest + data).split(b"\n")
        told = [json.loads(line) for line in lines]
        if not data:
            self.ended = True
            if self.process.wait() != 0:
                told.append({"event": "failed", "code": self.process.returncode, "why": self.why()})
        return [{**each, "worker": self.number} for each in told]

    def why(self) -> str:
        """The last line of its standard error."""
        with open(self.errors, errors="replace") as errors:
            lines = [line for line in errors.read().split("\n") if line.strip()]
        return lines[-1] if lines else ""


def tell(messages: list[dict[str, object]]) -> None:
    """Pass on what was told, a line each."""
    for message in messages:
        os.write(1, json.dumps(message).encode() + b"\n")


def prepare(players: list[Player], folder: str) -> None:
    """Hand the jobs over, wait until every connection stands, and start all at one moment."""
    for player in players:
        with open(os.path.join(folder, f"job-{player.number}"), "rb") as job:
            player.say(job.read())
    for player in players:
        told: list[dict[str, object]] = []
        while not told and not player.ended:
            told = player.hear()
        tell(told)
    start = time.monotonic_ns() + START_NS
    for player in players:
        player.say(b"go %020d" % start)


def follow(players: list[Player], folder: str) -> None:
    """Pass on what the players tell, and the wish to stop, until all have ended."""
    stop, said = os.path.join(folder, "stop"), b""
    playing = {player.outlet: player for player in players if not player.ended}
    while playing:
        for pipe in select.select(list(playing), [], [], LOOK_S)[0]:
            player = playing[pipe]
            tell(player.hear())
            if player.ended:
                del playing[pipe]
        if os.path.exists(stop):
            with open(stop, "rb") as file:
                reason = file.read()
            for player in playing.values() if reason != said else ():
                player.say(b"stop " + reason + b"\n")
            said = reason


def main() -> None:
    """Conduct the load whose jobs lie in a folder."""
    folder = sys.argv[2]
    count = len([name for name in os.listdir(folder) if name.startswith("job-")])
    players = [Player(folder, number) for number in range(count)]
    prepare(players, folder)
    follow(players, folder)
