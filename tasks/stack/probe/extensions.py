"""What the loader would miss in each compiled extension, found without loading any.

An import tries only the file that it takes for this GPU, and its error names only the first
symbol that is missing.
"""

from __future__ import annotations

import ctypes
import glob
import os
import re
import sys
import time

from .elf import Elf, NotShared, gnu_hash
from .fatbin import architectures
from .jobs import Json
from .packages import find, mapped

MOST_FILES, MOST_SYMBOLS, MOST_S = 300, 8, 20.0
UNDEFINED = re.compile(r"undefined symbol: (\w+)")
TORCH_OWN = re.compile(rb"3c10|2at[0-9]|5torch")
SYSTEM_FOLDERS = ("/lib/*-linux-gnu", "/usr/lib/*-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib")


class Loader:
    """Finds libraries as the dynamic loader of a process would in which torch is loaded."""

    def __init__(self, loaded: list[str], cache: dict[str, list[str]]) -> None:
        torch = find("torch")
        own = glob.glob(f"{os.path.dirname(torch)}/lib/*.so*") if torch else []
        self.torch = [path for path in loaded if "/torch/" in path] or own
        known = [*(loaded or own), *self.torch]
        self.loaded = {os.path.basename(path): path for path in reversed(known)}
        self.cache = cache
        self.open: dict[str, Elf | None] = {}
        self.hashes: dict[bytes, int] = {}
        searched = os.environ.get("LD_LIBRARY_PATH", "").split(":")
        self.first = [folder for folder in searched if folder]
        self.last = [folder for place in SYSTEM_FOLDERS for folder in glob.glob(place)]

    def read(self, path: str) -> Elf | None:
        """Read a file once."""
        if path not in self.open:
            try:
                self.open[path] = Elf(path)
            except NotShared:
                self.open[path] = None
        return self.open[path]

    def find(self, name: str, wanted_by: Elf, inherited: tuple[str, ...] = ()) -> str | None:
        """Where a library would come from; what is loaded already comes first."""
        if name in self.loaded:
            return self.loaded[name]
        before = [*wanted_by.rpath, *inherited] if not wanted_by.runpath else []
        places = [f"{folder}/{name}" for folder in [*before, *self.first, *wanted_by.runpath]]
        places += self.cache.get(name, [])
        places += [f"{folder}/{name}" for folder in self.last]
        return next((path for path in places if os.path.exists(path)), None)

    def closure(self, extension: Elf) -> tuple[list[Elf], list[str]]:
        """Every library that an extension brings with it, and the names of those not found."""
        found, missing, seen = [], [], set()
        waiting: list[tuple[Elf, tuple[str, ...]]] = [(extension, ())]
        while waiting:
            wanting, inherited = waiting.pop(0)
            for name in [each for each in wanting.needed if each not in seen]:
                seen.add(name)
                path = self.find(name, wanting, inherited)
                library = self.read(path) if path else None
                if library is not None:
                    found.append(library)
                    waiting.append((library, (*wanting.rpath, *inherited)))
                elif path is None:
                    missing.append(name)
        return found, missing

    def defined(self, name: bytes, libraries: list[Elf]) -> bool:
        """Whether one of the libraries defines a symbol."""
        hashed = self.hashes.setdefault(name, 0) or gnu_hash(name)
        self.hashes[name] = hashed
        return any(library.defines(name, hashed) for library in libraries)


def examine(packages: list[str], loaded: list[str], cache: dict[str, list[str]]) -> Json:
    """Look at every extension of the packages; only those that lack something are told of."""
    deadline = time.monotonic() + MOST_S
    loader = Loader(loaded, cache)
    here = dict.fromkeys([*loader.loaded.values(), sys.executable, *mapped()])
    process = [each for each in map(loader.read, here) if each is not None]
    files = [(name, path) for name in packages for path in extensions_of(name)]
    faults, code, examined = [], {}, 0
    for name, path in files[:MOST_FILES]:
        if time.monotonic() > deadline:
            break
        extension = loader.read(path)
        if extension is not None:
            examined += 1
            built = architectures(extension)
            if built:
                code[path] = built
            fault = lacking(extension, loader, process)
            if fault:
                faults.append({"package": name, "path": path, **fault})
    return {"files": len(files), "examined": examined, "faults": faults, "code": code}


def extensions_of(package: str) -> list[str]:
    """The shared objects of an installed package, the modules beside it that bear its name too."""
    origin = find(package)
    if origin is None or not os.path.isabs(origin):
        return []
    if os.path.basename(origin) != "__init__.py":
        return [origin] if origin.endswith(".so") else []
    folder = os.path.dirname(origin)
    inside = glob.glob(f"{glob.escape(folder)}/**/*.so", recursive=True)
    return sorted(inside) + sorted(glob.glob(f"{glob.escape(folder)}_*.so"))


def lacking(extension: Elf, loader: Loader, process: list[Elf]) -> Json:
    """What of an extension can't be had: libraries, versions of symbols, symbols.

    Where a library is missing it may hold any symbol, so then only torch's own count.
    """
    libraries, missing = loader.closure(extension)
    there = [*libraries, *process]
    absent = [name for name in extension.undefined() if not loader.defined(name, there)]
    if missing or not loader.torch:
        absent = [name for name in absent if loader.torch and TORCH_OWN.search(name)]
    versions = missing_versions(extension, loader)
    if not (missing or absent or versions):
        return {}
    # The shortest first: one that a person can read.
    told = sorted(absent, key=len)[:MOST_SYMBOLS]
    return {
        "libraries": missing,
        "versions": versions,
        "count": len(absent),
        "undefined": [symbol_facts(name, loader) for name in told],
    }


def missing_versions(extension: Elf, loader: Loader) -> list[str]:
    """Versions of symbols that the library which would be loaded doesn't offer."""
    lacked = []
    for name, wanted in extension.versions_needed().items():
        path = loader.find(name, extension)
        library = loader.read(path) if path else None
        offered = library.versions_defined() if library else set()
        if offered:
            lacked += [f"{path} lacks {each}" for each in wanted if each not in offered]
    return lacked


def symbol_facts(name: bytes, loader: Loader) -> Json:
    """A symbol as a person reads it, and what of the same name torch has instead."""
    opened = [loader.read(path) for path in loader.torch]
    prefix = qualified(name)
    offered: list[bytes] = []
    for library in opened if prefix else ():
        if library is not None and len(offered) < 2:
            found = library.beginning_with(prefix, 4)
            offered += [n for n in found if n != name and library.defines(n, gnu_hash(n))]
    shown = sorted({readable(each) for each in offered})
    return {"name": name.decode(), "readable": readable(name), "offered": shown[:2]}


def qualified(name: bytes) -> bytes:
    """The part of a mangled name before its parameters; empty where it isn't a plain one."""
    match = re.match(rb"_ZN[KVr]*", name)
    at = match.end() if match else 0
    while match and name[at : at + 1].isdigit():
        length = re.match(rb"\d+", name[at:])
        if length is None:
            return b""
        at += length.end() + int(length.group())
    return name[: at + 1] if match and name[at : at + 1] == b"E" else b""


def readable(name: bytes) -> str:
    """Demangle a symbol with the C++ library that torch needs anyway, where that is there."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return name.decode()
    demangle = library.__cxa_demangle
    demangle.restype, status = ctypes.c_void_p, ctypes.c_int(0)
    text = demangle(name, None, None, ctypes.byref(status))
    if status.value or not text:
        return name.decode()
    try:
        return ctypes.string_at(text).decode(errors="replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(text))
