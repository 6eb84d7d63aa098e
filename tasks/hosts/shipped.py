"""What is sent to a host to be run there: the agent, and two programs that need no agent."""

from importlib import resources

_ENTRY = "from agent.commands import main\n\nmain()\n"
END_RUNS = """
import os, signal, sys, time
names = sys.stdin.buffer.read().split()
deadline, quiet = time.monotonic() + 10, 0
while quiet < 2 and time.monotonic() < deadline:
    quiet += 1
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for part in ("environ", "cmdline"):
            try:
                with open("/proc/" + pid + "/" + part, "rb") as file:
                    text = file.read()
                if any(name in text for name in names):
                    os.kill(int(pid), signal.SIGKILL)
                    quiet = 0
            except OSError:
                continue
    time.sleep(0.05)
"""
INSTALL = """
import json, os, sys
folder, files = json.load(sys.stdin)
folder = os.path.expanduser(folder)
if not os.path.isdir(folder):
    beside = folder + "." + str(os.getpid())
    os.makedirs(os.path.join(beside, "agent"))
    for name, text in files.items():
        with open(os.path.join(beside, name), "w") as file:
            file.write(text)
    try:
        os.rename(beside, folder)
    except OSError:
        if not os.path.isdir(folder):
            raise
print(folder)
"""


def agent_files() -> dict[str, str]:
    """The agent's files by their path in its folder."""
    package = resources.files("tasks.hosts.agent")
    sources = sorted(item.name for item in package.iterdir() if item.name.endswith(".py"))
    files = {f"agent/{name}": (package / name).read_text() for name in sources}
    return {"__main__.py": _ENTRY, **files}
