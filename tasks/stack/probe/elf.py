"""Read what the dynamic loader reads of a shared object, without loading it.

The layout is that of the System V ABI's ELF-64, little endian; the hash table and the symbol
versions are the GNU extensions that every Linux linker writes.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Iterator  # noqa: UP035 - Python 3.8 on the host

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NEEDED, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 5, 6, 10, 14, 15, 29
DT_GNU_HASH, DT_VERDEF, DT_VERDEFNUM = 0x6FFFFEF5, 0x6FFFFFFC, 0x6FFFFFFD
DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
SHT_DYNSYM = 11
GLOBAL, VER_FLG_WEAK = 1, 2
SYMBOL = struct.Struct("<IBBHQQ")


class NotShared(Exception):
    """A file that is no 64-bit little-endian shared object, or a damaged one."""


class Elf:
    """One shared object, through a memory map: only the pages that are asked for are read."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if self.map[:6] != b"\x7fELF\x02\x01":
                raise NotShared(path)
            self._segments()
            self._read_dynamic()
        except (OSError, ValueError, IndexError, KeyError, struct.error) as error:
            raise NotShared(f"{path}: {error}") from error

    def _segments(self) -> None:
        """Where what is at an address in memory stands in the file, and the dynamic section."""
        start, size, count = self.at("<Q", 32)[0], *self.at("<HH", 54)
        self.loads, self.dynamic = [], b""
        for number in range(count):
            kind, _, offset, address, _, length = self.at("<IIQQQQ", start + number * size)
            if kind == PT_LOAD:
                self.loads.append((address, offset, length))
            elif kind == PT_DYNAMIC:
                self.dynamic = self.map[offset : offset + length]

    def _read_dynamic(self) -> None:
        whole = self.dynamic[: len(self.dynamic) // 16 * 16]
        entries = list(struct.iter_unpack("<QQ", whole))
        tags = dict(reversed(entries))
        self.tags = tags
        self.strings = self._offset(tags[DT_STRTAB])
        self.strings_end = self.strings + tags[DT_STRSZ]
        self.needed = [self._text(value).decode() for tag, value in entries if tag == DT_NEEDED]
        self.soname = self._text(tags[DT_SONAME]).decode() if DT_SONAME in tags else ""
        self.runpath = self._folders(DT_RUNPATH)
        # An RPATH counts for what a library brings with it as well, but not beside a RUNPATH.
        self.rpath = [] if self.runpath else self._folders(DT_RPATH)
        self._read_hash()

    def _folders(self, tag: int) -> list[str]:
        """A search path, with `$ORIGIN` filled in."""
        if tag not in self.tags:
            return []
        origin = os.path.dirname(os.path.realpath(self.path))
        path = self._text(self.tags[tag]).decode().replace("${ORIGIN}", "$ORIGIN")
        return [each for each in path.replace("$ORIGIN", origin).split(":") if each]

    def _read_hash(self) -> None:
        """The hash table sorts defined symbols behind the others; where it begins says how many."""
        self.buckets, self.first = b"", 0
        self.names: set[bytes] | None = None
        self.bloom: tuple[int, ...] = ()
        if DT_GNU_HASH not in self.tags:
            return
        start = self._offset(self.tags[DT_GNU_HASH])
        buckets, self.first, words, self.shift = self.at("<IIII", start)
        self.bloom = self.at(f"<{words}Q", start + 16)
        self.chains = start + 16 + 8 * words + 4 * buckets
        self.buckets = self.map[self.chains - 4 * buckets : self.chains]

    def at(self, layout: str, offset: int) -> tuple[int, ...]:
        """Numbers of the file, as `struct` lays them out."""
        return struct.unpack_from(layout, self.map, offset)

    def _offset(self, address: int) -> int:
        for start, offset, length in self.loads:
            if start <= address < start + length:
                return offset + address - start
        raise NotShared(f"{self.path}: nothing at address {address:#x}")

    def _text(self, index: int) -> bytes:
        start = self.strings + index
        return self.map[start : self.map.find(b"\0", start)]

    def undefined(self) -> Iterator[bytes]:
        """Every symbol that another object must define; one that may stay undefined is left out."""
        for name, info, section in self._symbols():
            if section == 0 and info >> 4 == GLOBAL and name:
                yield self._text(name)

    def _symbols(self) -> Iterator[tuple[int, int, int]]:
        """Name, kind and section of the dynamic symbols; at the least of those not defined here."""
        start, count = self._symbol_table()
        table = self.map[start : start + count * SYMBOL.size]
        for name, info, _, section, _, _ in SYMBOL.iter_unpack(table):
            yield name, info, section

    def _symbol_table(self) -> tuple[int, int]:
        """Where the dynamic symbols begin, and how many there are, or may be undefined."""
        for _, kind, offset, length in self._sections():
            if kind == SHT_DYNSYM:
                return offset, length // SYMBOL.size
        return self._offset(self.tags[DT_SYMTAB]), self.first

    def _sections(self) -> Iterator[tuple[int, int, int, int]]:
        """Name, kind, place and length of each section; a stripped file may have none."""
        start, size, count = self.at("<Q", 40)[0], *self.at("<HH", 58)
        for number in range(count if start else 0):
            name, kind, _, _, offset, length = self.at("<IIQQQQ", start + number * size)
            yield name, kind, offset, length

    def section(self, wanted: bytes) -> tuple[int, int]:
        """Where a section lies, and its length; 0 and 0 where there is none of that name."""
        sections = list(self._sections())
        (names,) = self.at("<H", 62)
        table = sections[names][2] if names < len(sections) else 0
        for name, _, offset, length in sections:
            if self.map[table + name : table + name + len(wanted) + 1] == wanted + b"\0":
                return offset, length
        return 0, 0

    def defines(self, name: bytes, hashed: int) -> bool:
        """Look a symbol up as the loader does; `hashed` is `gnu_hash(name)`."""
        if not self.buckets:
            return name in self._names()
        word = self.bloom[hashed // 64 % len(self.bloom)]
        known = (word >> hashed % 64) & (word >> (hashed >> self.shift) % 64) & 1
        if not known:
            return False
        place = hashed % (len(self.buckets) // 4) * 4
        index = int.from_bytes(self.buckets[place : place + 4], "little")
        return index >= self.first and self._in_chain(name, hashed, index)

    def _names(self) -> set[bytes]:
        """The names of the defined symbols, for a library without a GNU hash table."""
        if self.names is None:
            self.names = {self._text(name) for name, _, section in self._symbols() if section}
        return self.names

    def _in_chain(self, name: bytes, hashed: int, index: int) -> bool:
        table = self._offset(self.tags[DT_SYMTAB])
        while True:
            (chained,) = self.at("<I", self.chains + 4 * (index - self.first))
            if chained | 1 == hashed | 1:
                text, _, _, section, _, _ = SYMBOL.unpack_from(
                    self.map, table + index * SYMBOL.size
                )
                if section and self._text(text) == name:
                    return True
            if chained & 1:
                return False
            index += 1

    def beginning_with(self, prefix: bytes, most: int) -> list[bytes]:
        """Symbols whose names begin so, whether defined here or only mentioned."""
        found: list[bytes] = []
        at = self.map.find(b"\0" + prefix, self.strings, self.strings_end)
        while at >= 0 and len(found) < most:
            found.append(self.map[at + 1 : self.map.find(b"\0", at + 1)])
            at = self.map.find(b"\0" + prefix, at + 1, self.strings_end)
        return found

    def versions_needed(self) -> dict[str, list[str]]:
        """The symbol versions that it wants of each library, as `GLIBCXX_3.4.32` of libstdc++."""
        wanted: dict[str, list[str]] = {}
        if DT_VERNEED not in self.tags:
            return wanted
        at = self._offset(self.tags[DT_VERNEED])
        for _ in range(self.tags[DT_VERNEEDNUM]):
            _, count, file, inner, following = self.at("<HHIII", at)
            names = wanted.setdefault(self._text(file).decode(), [])
            inner += at
            for _ in range(count):
                _, flags, _, name, step = self.at("<IHHII", inner)
                if not flags & VER_FLG_WEAK:
                    names.append(self._text(name).decode())
                inner += step
            at += following
        return wanted

    def versions_defined(self) -> set[str]:
        """The symbol versions that it offers."""
        offered: set[str] = set()
        if DT_VERDEF not in self.tags:
            return offered
        at = self._offset(self.tags[DT_VERDEF])
        for _ in range(self.tags[DT_VERDEFNUM]):
            inner, following = self.at("<II", at + 12)
            offered.add(self._text(self.at("<I", at + inner)[0]).decode())
            at += following
        return offered


def gnu_hash(name: bytes) -> int:
    """The hash of a symbol's name in the GNU hash table."""
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value
