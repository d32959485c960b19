"""Prints, for the build, where PyTorch's headers and libraries are, and what it was built with.

A line each: the folder of libraries, the C++ ABI (1 is today's), arguments of the compiler, and
folders of headers.
"""

import torch
from torch.utils import cpp_extension

arguments = [
    f'-DPYBIND11_{name}="{getattr(torch._C, f"_PYBIND11_{name}")}"'
    for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI")
    if getattr(torch._C, f"_PYBIND11_{name}", None)
]
print(cpp_extension.library_paths()[0])
print(int(torch._C._GLIBCXX_USE_CXX11_ABI))
print(" ".join(arguments))
print("\n".join(cpp_extension.include_paths()))
