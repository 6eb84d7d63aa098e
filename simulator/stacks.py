"""Pretend software stacks: an interpreter each, with packages that only know their versions.

The packages are importable and have metadata, which is all that a validation of a stack looks at.
A scenario with an `abi-undefined-symbol` fault for a stack makes `import sgl_kernel` fail there.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from simulator import messages
from simulator.scenario import Scenario, value_matches

CUDA_OF = {"cu130": "13.0", "cu128": "12.8"}  # in order of preference
CUDNN_GOOD, CUDNN_BUGGY = "9.16.0.29", "9.10.2.21"
NCCL_VERSION = (2, 28, 9)

Write = Callable[[Path, str], None]

TORCH = '''"""A pretend torch: what a stack says of itself, and nothing that computes."""

__version__ = "{version}"


class version:
    cuda = "{cuda}"
    git_version = "pretend"
    hip = None


def compiled_with_cxx11_abi() -> bool:
    return True


from torch import backends, cuda  # noqa: E402,F401
'''

TORCH_CUDA = '''"""The pretend host's GPUs, as torch.cuda sees them."""

import os
from pathlib import Path

from torch.cuda import nccl  # noqa: F401

_ROOT = Path({root!r})


def _indices():
    names = (path.name[6:] for path in (_ROOT / "dev").glob("nvidia*"))
    return sorted(int(name) for name in names if name.isdigit())


def device_count() -> int:
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return len(_indices())
    return len([c for c in chosen.split(",") if c.strip().isdigit() and int(c) in _indices()])


def is_available() -> bool:
    return device_count() > 0


def get_device_capability(device=None):
    return (12, 0)


def get_device_name(device=None) -> str:
    return "NVIDIA RTX PRO 6000 Blackwell Server Edition"


def get_arch_list():
    return ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]
'''

NCCL = f'''"""NCCL's version."""


def version():
    return {NCCL_VERSION}
'''

BACKENDS = '''"""torch.backends, of which only cuDNN says anything."""

from torch.backends import cudnn  # noqa: F401
'''

CUDNN = '''"""cuDNN's version."""

enabled = True


def is_available() -> bool:
    return True


def version() -> int:
    return {cudnn}
'''

PLAIN = '"""A pretend {name}: it only knows its version."""\n\n__version__ = "{version}"\n'
BROKEN = (
    '"""A pretend sgl_kernel that was built against another torch."""\n\n'
    "raise ImportError({message!r})\n"
)


def versions(stack: str, sglang: str, cudnn: str) -> dict[str, tuple[str, str]]:
    """Return, by distribution name, the module and the version that a stack has."""
    cuda_major = CUDA_OF[stack].split(".")[0]
    return {
        "torch": ("torch", f"2.9.1+{stack}"),
        "sglang": ("sglang", sglang),
        "sgl-kernel": ("sgl_kernel", "0.3.21"),
        "flashinfer-python": ("flashinfer", "0.6.3"),
        "flashinfer-jit-cache": ("", f"0.6.3+{stack}"),
        "triton": ("triton", "3.5.1"),
        f"nvidia-cudnn-cu{cuda_major}": ("", cudnn),
        f"nvidia-nccl-cu{cuda_major}": ("", ".".join(map(str, NCCL_VERSION))),
    }


def has_fault(kind: str, stack: str, host: Scenario) -> bool:
    """Tell whether a fault is part of this stack, whatever is launched with it."""
    return any(
        fault.kind == kind
        and value_matches(fault.when.get("stack", stack), stack)
        and fault.attempts is None
        for fault in host.faults
    )


def cudnn_number(version: str) -> int:
    """Return cuDNN 9's own number of a version: 9.16.0 is 91600."""
    major, minor, patch, *_ = map(int, version.split("."))
    return major * 10_000 + minor * 100 + patch


def write_stack(root: Path, stack: str, host: Scenario, repository: Path, write: Write) -> None:
    """Write one stack's interpreter and packages."""
    folder = root / "stacks" / stack
    site = folder / "site-packages"
    python = folder / "bin" / "python3"
    write(
        python,
        "#!/bin/sh\n"
        f"export SIMULATOR_STACK='{stack}'\n"
        f"export PYTHONPATH='{repository}:{site}'\"${{PYTHONPATH:+:$PYTHONPATH}}\"\n"
        f"exec '{sys.executable}' \"$@\"\n",
    )
    python.chmod(0o755)
    cudnn = CUDNN_BUGGY if has_fault("cudnn-check", stack, host) else CUDNN_GOOD
    _write_torch(root, site, stack, cudnn, write)
    for name, (module, version) in versions(stack, host.sglang_version, cudnn).items():
        if module not in ("", "torch"):
            write(site / module / "__init__.py", PLAIN.format(name=module, version=version))
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        folder_name = f"{name.replace('-', '_')}-{version}.dist-info"
        write(site / folder_name / "METADATA", metadata)
    if has_fault("abi-undefined-symbol", stack, host):
        message = messages.undefined_symbol(str(site))
        write(site / "sgl_kernel" / "__init__.py", BROKEN.format(message=message))


def _write_torch(root: Path, site: Path, stack: str, cudnn: str, write: Write) -> None:
    torch = site / "torch"
    text = TORCH.format(version=f"2.9.1+{stack}", cuda=CUDA_OF[stack])
    write(torch / "__init__.py", text)
    write(torch / "cuda" / "__init__.py", TORCH_CUDA.format(root=str(root)))
    write(torch / "cuda" / "nccl.py", NCCL)
    write(torch / "backends" / "__init__.py", BACKENDS)
    write(torch / "backends" / "cudnn.py", CUDNN.format(cudnn=cudnn_number(cudnn)))
