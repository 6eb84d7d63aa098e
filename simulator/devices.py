"""The pretend device files and who holds them open, as the kernel tells it."""

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

SCHEDULER_MIB, OTHER_MIB = 89_216, 512


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that has a device open."""

    pid: int
    name: str
    device: Path

    @property
    def used_mib(self) -> int:
        """Return the GPU memory it is taken to use: a scheduler nearly all, others a context."""
        return SCHEDULER_MIB if self.name.startswith("sglang::") else OTHER_MIB


def gpu_files(root: Path) -> list[Path]:
    """Return the files of the GPUs, in the order of their indices."""
    found = [p for p in (root / "dev").glob("nvidia*") if p.name[6:].isdigit()]
    return sorted(found, key=lambda path: int(path.name[6:]))


def control_files(root: Path) -> list[Path]:
    return [root / "dev" / "nvidiactl", root / "dev" / "nvidia-uvm"]


def visible_gpus(root: Path, environment: Mapping[str, str]) -> list[Path]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves visible, in its order."""
    files = gpu_files(root)
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return files
    wanted = [c.strip() for c in chosen.split(",")]
    return [files[int(c)] for c in wanted if c.isdigit() and int(c) < len(files)]


def holders(files: Iterable[Path]) -> list[Holder]:
    """Return who has which of these files open, by process id."""
    wanted = {str(path.resolve()): path for path in files}
    found: list[Holder] = []
    for entry in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        held = _open_files(entry) & wanted.keys()
        found += [Holder(int(entry), _name(entry), wanted[path]) for path in sorted(held)]
    return found


def _open_files(pid: str) -> set[str]:
    paths: set[str] = set()
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                paths.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return paths


def _name(pid: str) -> str:
    """Return the process' command line up to its first argument, else its short name."""
    with contextlib.suppress(OSError):
        title = Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
        if title:
            return title.decode(errors="replace")
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return "[Not Found]"
