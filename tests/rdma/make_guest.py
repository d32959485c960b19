"""Makes what the virtual machines of tests/rdma boot from: Debian's kernel and busybox.

    make_guest.py FOLDER

Downloads the two packages and unpacks them in FOLDER; installs nothing. Leaves FOLDER/vmlinux and
FOLDER/initrd, and does nothing when they are newer than the scripts they are made from.
"""

import lzma
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent

# With those that they need. soft-RoCE is rdma_rxe; the host's files come by 9p.
MODULES = """virtio_mmio virtio_net virtio_rng 9pnet_virtio 9p overlay crc32_generic crc32_pclmul
             ib_uverbs rdma_ucm rdma_rxe dummy""".split()


def run(*command, **options):
    return subprocess.run(command, check=True, text=True, capture_output=True, **options).stdout


def kernel_package():
    """The package that Debian's newest stable kernel is in."""
    depends = run("apt-cache", "depends", "linux-image-amd64")
    return re.search(r"Depends: (linux-image-\S+)", depends).group(1)


def fetch(package, folder):
    """Unpacks `package` in a folder of its own name."""
    root = folder / package
    if not root.exists():
        run("apt-get", "download", package, cwd=folder)
        (archive,) = folder.glob(f"{package}_*.deb")
        run("dpkg", "-x", archive.name, f"{package}.part", cwd=folder)
        (folder / f"{package}.part").rename(root)
        archive.unlink()
    return root


def unpack_kernel(image, target):
    """A bzImage holds the ELF file, packed; that boots seconds sooner under emulation."""
    data = image.read_bytes()
    start = data.find(b"\xfd7zXZ\0")
    # What stands behind the packed part is not its business.
    target.write_bytes(lzma.LZMADecompressor().decompress(data[start:]) if start >= 0 else data)


def load_order(modules):
    """The files of MODULES and all that they need, each behind what it needs."""
    needs, path_of = {}, {}
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, rest = line.partition(":")
        needs[path] = rest.split()
        path_of[pathlib.Path(path).name.split(".")[0].replace("-", "_")] = path
    order = []

    def add(path):
        for needed in needs[path]:
            add(needed)
        if path not in order:
            order.append(path)

    for name in MODULES:
        if name in path_of:  # else it is built in
            add(path_of[name])
    return [modules / path for path in order]


def cpio_entry(number, name, mode, data=b""):
    name = name.encode() + b"\0"
    fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
    entry = b"070701" + b"".join(b"%08x" % field for field in fields) + name
    entry += bytes(-len(entry) % 4) + data
    return entry + bytes(-len(entry) % 4)


def write_initrd(target, busybox, modules):
    folder, program = 0o040755, 0o100755
    entries = [(name, folder, b"") for name in "bin dev modules new proc ro rw sys".split()]
    entries.append(("bin/busybox", program, busybox.read_bytes()))
    entries.append(("init", program, (HERE / "guest" / "init").read_bytes()))
    for module in modules:
        entries.append((f"modules/{module.name}", program, module.read_bytes()))
    order = "".join(f"{module.name}\n" for module in modules)
    entries.append(("modules/order", program, order.encode()))
    entries.append(("TRAILER!!!", 0, b""))
    target.write_bytes(b"".join(cpio_entry(i, *entry) for i, entry in enumerate(entries)))


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    initrd = folder / "initrd"
    sources = [pathlib.Path(__file__), HERE / "guest" / "init"]
    if initrd.exists() and all(initrd.stat().st_mtime > file.stat().st_mtime for file in sources):
        return
    for leftover in folder.glob("*.part"):
        shutil.rmtree(leftover)
    package = kernel_package()
    version = package.removeprefix("linux-image-")
    kernel = fetch(package, folder)
    busybox = fetch("busybox-static", folder) / "bin" / "busybox"
    for packed in (kernel / "lib").rglob("*.ko.xz"):
        run("xz", "-d", str(packed))
    run(str(busybox), "depmod", "-b", str(kernel), version)
    unpack_kernel(kernel / "boot" / f"vmlinuz-{version}", folder / "vmlinux")
    write_initrd(initrd, busybox, load_order(kernel / "lib" / "modules" / version))


if __name__ == "__main__":
    try:
        main()
    except (subprocess.CalledProcessError, OSError) as error:
        sys.exit(f"{error} {getattr(error, 'stderr', None) or ''}".strip().splitlines()[-1])
