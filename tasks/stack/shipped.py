"""The probe as one program: its modules are sent along, so that nothing is written to the host."""

from importlib import resources

_LOADER = """
import importlib.abc
import importlib.util
import sys

SOURCES = {sources!r}
NAME = "sglang_sweep_probe"


class Shipped(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def find_spec(self, name, path=None, target=None):
        if name != NAME and name.rpartition(".")[0] != NAME or name not in SOURCES:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=name == NAME)

    def get_source(self, name):
        return SOURCES[name]


sys.meta_path.insert(0, Shipped())
importlib.import_module(NAME + ".answer").main()
"""


def probe_program() -> bytes:
    """A program that an interpreter reads from its standard input."""
    package = resources.files("tasks.stack.probe")
    files = [item for item in package.iterdir() if item.name.endswith(".py")]
    sources = {_module(item.name): item.read_text() for item in files}
    return _LOADER.format(sources=sources).encode()


def _module(file: str) -> str:
    name = "sglang_sweep_probe"
    return name if file == "__init__.py" else f"{name}.{file.removesuffix('.py')}"
