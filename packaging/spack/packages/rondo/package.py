# SPDX-License-Identifier: BSD-3-Clause
"""Rondo for Spack.

    spack repo add packaging/spack
    spack dev-build rondo@main +python fabrics=ucx,ofi

Spack itself was not run with this recipe: it fetches what it builds, and the machines that test
Rondo reach no registry of sources. tests/packaging/recipes_test.py loads it with a stand-in for
Spack's package language, and compares variants and versions with meson.build and meson_options.txt.
"""

from spack.package import *


class Rondo(MesonPackage):
    """Training of convolutional networks on clusters of CPUs, and nonblocking collectives
    for programs in C++, C, Python and PyTorch."""

    license("BSD-3-Clause")

    # A checkout is built as it lies (spack dev-build), so no address and no hash is needed.
    version("main")
    version("0.2.0")

    variant(
        "fabrics",
        default="ucx,ofi",
        values=any_combination_of("ucx", "ofi"),
        description="Links between nodes, plug-ins over UCX and libfabric",
    )
    variant("pmix", default=True, description="Launchers that speak PMIx")
    variant("python", default=True, description="The Python package for NumPy arrays")
    variant("torch", default=False, description='The backend "rondo" of torch.distributed')

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake", type="build")
    depends_on("meson@1.0.1:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.9:", type="build")

    depends_on("cli11@2.1:", type="build")
    depends_on("fmt@9:")
    depends_on("hwloc@2:")
    depends_on("libjpeg-turbo@2:")
    depends_on("libpng@1.6:")
    depends_on("nlohmann-json@3.11:", type="build")
    # oneDNN's threads must be those of gcc's OpenMP, as Rondo's own are.
    depends_on("onednn@2.6:3 cpu_runtime=omp")
    depends_on("openssl@3:")
    depends_on("random123", type="build")
    depends_on("tomlplusplus@3.3:", type="build")
    depends_on("xtensor@0.24:", type=("build", "link"))
    depends_on("xxhash@0.8:")
    depends_on("zlib-api")

    depends_on("libfabric", when="fabrics=ofi")
    depends_on("pmix@4:", when="+pmix")
    depends_on("ucx@1.13:", when="fabrics=ucx")

    extends("python", when="+python")
    depends_on("py-numpy", type="run", when="+python")
    depends_on("py-pybind11", type="build", when="+torch")
    depends_on("py-torch", type=("build", "link", "run"), when="+torch")
    requires("+python", when="+torch", msg="The backend of PyTorch is part of the Python package.")
    requires("%gcc@12:", when="+torch", msg="PyTorch's headers have been compiled by gcc only.")

    def meson_args(self):
        """Every optional part is chosen here, so that nothing depends on what a machine has."""

        def feature(name, enabled):
            return f"-D{name}={'enabled' if enabled else 'disabled'}"

        arguments = [
            feature("benchmarks", False),
            feature("fuzzers", False),
            feature("ofi", self.spec.satisfies("fabrics=ofi")),
            feature("pmix", self.spec.satisfies("+pmix")),
            feature("tests", False),
            feature("torch", self.spec.satisfies("+torch")),
            feature("ucx", self.spec.satisfies("fabrics=ucx")),
            "--wrap-mode=nofallback",
        ]
        if self.spec.satisfies("+python"):
            arguments += [
                f"-Dpython.platlibdir={python_platlib}",
                f"-Dpython.purelibdir={python_purelib}",
            ]
        return arguments
