"""Stand in for `sgl_kernel.kvcacheio`, the one submodule that SGLang imports by name on a CPU."""

from sgl_kernel import __getattr__ as __getattr__
