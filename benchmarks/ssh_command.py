"""What a command on a host costs over an open connection, against a bare asyncssh round trip.

    python benchmarks/ssh_command.py gpu-box [--prefix sudo -n] [--rounds 200] [--hosts 20]

The host is an alias of ~/.ssh/config. Both sides run /bin/true in turn, so that whatever else the
machines do meets both. Then as many hosts as `--hosts` says (the same alias, with a connection
each) are asked at once.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from settings.host import Host as HostSettings
from tasks.hosts.connect import connect
from tasks.hosts.ssh.login import Account, log_in


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds that some work took."""
    started = time.perf_counter()
    await work()
    return (time.perf_counter() - started) * 1e3


async def compare(alias: str, prefix: tuple[str, ...], rounds: int) -> None:
    """Time a command, bare and through a host, and a question to the agent."""
    bare = await log_in(Account("bench", alias), lambda _: None)
    times: dict[str, list[float]] = {"bare asyncssh": [], "Host.run": [], "Host.ask": []}
    async with connect("bench", HostSettings(address=alias, prefix=prefix)) as host:
        for _ in range(rounds):
            times["bare asyncssh"].append(await timed(lambda: bare.run("/bin/true")))
            times["Host.run"].append(await timed(lambda: host.run(["/bin/true"])))
        for _ in range(rounds // 4):
            times["Host.ask"].append(await timed(lambda: host.ask("hello", {})))
    bare.close()
    reference = statistics.median(times["bare asyncssh"])
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name:14} median {median:6.2f} ms  {median / reference:5.2f}x")


async def poll(alias: str, count: int) -> None:
    """Hold a connection to many hosts, and ask all of them at once."""
    barrier = asyncio.Barrier(count)
    took_ms: list[float] = []

    async def one(number: int) -> None:
        settings = HostSettings(address=alias, run_folder=f"~/.sglang-sweep-bench/{number}")
        async with connect(f"bench-{number}", settings) as host:
            await barrier.wait()
            took_ms.append(await timed(host.occupants))
            await barrier.wait()

    whole_ms = await timed(lambda: asyncio.gather(*map(one, range(count))))
    print(f"{count} hosts: asked at once, the slowest answered after {max(took_ms):.0f} ms", end="")
    print(f" ({whole_ms / 1e3:.1f} s with logins and installing the agent)")


def main() -> None:
    """Run both for the alias on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("alias")
    parser.add_argument("--prefix", nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--hosts", type=int, default=20)
    asked = parser.parse_args()
    asyncio.run(compare(asked.alias, tuple(asked.prefix), asked.rounds))
    asyncio.run(poll(asked.alias, asked.hosts))


if __name__ == "__main__":
    main()
