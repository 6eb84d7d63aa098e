"""Virtual environments that are broken on purpose, with packages made on the spot."""

import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

PYINIT = """
#include <Python.h>
{declarations}
static struct PyModuleDef module = {{PyModuleDef_HEAD_INIT, "{name}", 0, -1, 0}};
PyMODINIT_FUNC PyInit_{name}(void) {{ {body} return PyModule_Create(&module); }}
"""

LAUNCHER = """
import argparse, pathlib, sys

runs = pathlib.Path(__file__).with_name("runs")
runs.write_text(runs.read_text() + "." if runs.exists() else ".")
parser = argparse.ArgumentParser(prog="launch_server.py")
parser.add_argument("--model-path", "--model", required=True)
parser.add_argument("--tp-size", "--tensor-parallel-size", type=int)
parser.add_argument("--attention-backend", choices=["flashinfer", "triton"], help="x" * 200)
parser.parse_args()
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment that knows no package but those that a test writes."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        (site,) = self.folder.glob("lib/python3*/site-packages")
        return site

    def module(self, name: str, text: str) -> Path:
        """Write a package of one file."""
        path = self.site.joinpath(*name.split("."), "__init__.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def wheel(self, name: str, version: str, *requires: str) -> None:
        """Write a wheel's metadata."""
        folder = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in requires]
        (folder / "METADATA").write_text("\n".join(lines) + "\n")

    def sglang(self) -> None:
        """Write an sglang whose launcher has three options and counts how often it is run."""
        self.wheel("sglang", "0.5.9", "torch==2.9.1", "flashinfer_python==0.6.3")
        self.module("sglang", "__version__ = '0.5.9'\n")
        (self.site / "sglang" / "launch_server.py").write_text(LAUNCHER)

    def extension(
        self, package: str, name: str, body: str, declarations: str = "", *options: str
    ) -> None:
        """Compile a package's extension; raises where there is no compiler."""
        text = PYINIT.format(name=name, body=body, declarations=declarations)
        source = self.folder / f"{name}.c"
        source.write_text(text)
        target = self.site / package / f"{name}.abi3.so"
        include = f"-I{sysconfig.get_path('include')}"
        compile_shared(source, target, include, *options)


def compile_shared(source: Path, target: Path, *options: str) -> None:
    command = ["gcc", "-shared", "-fPIC", str(source), "-o", str(target), *options]
    subprocess.run(command, check=True, capture_output=True)


def make_environment(folder: Path, python: str = sys.executable) -> Environment:
    """Make a virtual environment without pip; some tenths of a second."""
    command = [python, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return Environment(folder)
