"""Stand in for `sgl_kernel` on a machine without a GPU: any name imports, nothing runs.

SGLang imports names from `sgl_kernel` when its own modules load, whatever the device. The real
package is compiled for CUDA and does not load without it, so `--device cpu` would fail before it
reads a flag. With this folder on PYTHONPATH those imports succeed; the CPU path of the
`torch_native` attention backend calls none of them. A call that should not have happened raises
`NotImplementedError` with the kernel's name, and is never answered with a wrong number.
"""

from collections.abc import Callable
from typing import NoReturn


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):  # __path__, __all__: the import system's questions, not a kernel
        raise AttributeError(name)

    def absent_kernel(*_args: object, **_kwargs: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} is a stand-in: no kernel runs on a CPU")

    absent_kernel.__name__ = name
    return absent_kernel
