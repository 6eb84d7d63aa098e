"""For which GPUs a library holds code, read from the headers of its CUDA fat binaries.

The layout is undocumented and has been the same from CUDA 11 on: a container (magic, version,
length of its header, length of its content) holds entries (kind, version, length of header and
content; the architecture 28 bytes in, flags 40 bytes in). Seen in what nvcc 13.0 writes. What
reads otherwise tells nothing.
"""

from __future__ import annotations

import struct
from typing import Iterator  # noqa: UP035 - Python 3.8 on the host

from .elf import Elf

MAGIC = 0xBA55ED50
CONTAINER, ENTRY = struct.Struct("<IHHQ"), struct.Struct("<HHIQ")
PTX, CUBIN = 1, 2
EXACT, FAMILY = 1 << 20, 1 << 21
"""Flags of code for one architecture alone (`sm_90a`), and for its family (`sm_100f`)."""

MOST_ENTRIES = 200_000


def architectures(elf: Elf) -> list[str]:
    """`sm_90a` for compiled code, `compute_80` for code that the driver compiles; none: no GPU's.

    Only headers are read; the code itself may be compressed.
    """
    found: set[str] = set()
    start, length = elf.section(b".nv_fatbin")
    try:
        for number, (kind, architecture, flags) in enumerate(entries(elf, start, start + length)):
            suffix = "a" if flags & EXACT else "f" if flags & FAMILY else ""
            if kind in (PTX, CUBIN):
                found.add(f"{'sm' if kind == CUBIN else 'compute'}_{architecture}{suffix}")
            if number > MOST_ENTRIES:
                break
    except struct.error:
        return []
    return sorted(found)


def entries(elf: Elf, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Kind, architecture and flags of every entry between two places of the file."""
    while at + CONTAINER.size <= end:
        magic, _, header, length = CONTAINER.unpack_from(elf.map, at)
        if magic != MAGIC or header < CONTAINER.size:
            at += 8  # containers are aligned
            continue
        entry, stop = at + header, min(at + header + length, end)
        while entry + 48 <= stop:
            kind, _, own, content = ENTRY.unpack_from(elf.map, entry)
            architecture, flags = (*elf.at("<I", entry + 28), *elf.at("<Q", entry + 40))
            yield kind, architecture, flags
            if own < 48:
                break
            entry += own + content
        at = stop
