#!/usr/bin/python3
"""Weights that go from Rondo to PyTorch and back.

    tests/tools/pytorch_exchange.py BUILD/tools/rondo

Needs Debian's python3-torch and nothing else: the models of torchvision and the few bytes of the
safetensors format are written here once more, so that the test compares with another hand's work.
For ResNet-20 (CIFAR) and ResNet-18 it checks that

- a file that `rondo export` wrote gives the same logits in PyTorch as `rondo predict` does;
- a state_dict of PyTorch's, with its counters of batches, gives the same logits in Rondo;
- what Rondo exports of it, written again in Python, has the same bytes, and so has its next export.
"""

import array
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import torch
from torch import nn

TOLERANCE = 1e-4  # of logits: fp32 through 20 layers, summed in another order
TYPES = {torch.float32: ("F32", "f", 4), torch.int64: ("I64", "q", 8)}


class Block(nn.Module):
    """torchvision's BasicBlock."""

    def __init__(self, channels, filters, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, filters, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.downsample = None
        if stride != 1 or channels != filters:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, filters, 1, stride, bias=False), nn.BatchNorm2d(filters)
            )

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + shortcut)


class ResNet(nn.Module):
    """torchvision's ResNet; with `cifar` the one of section 4.2 of He et al. (2016)."""

    def __init__(self, blocks, width, classes, cifar):
        super().__init__()
        self.cifar = cifar
        kernel, stride, padding = (3, 1, 1) if cifar else (7, 2, 3)
        self.conv1 = nn.Conv2d(3, width, kernel, stride, padding, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.stages = len(blocks)
        channels = width
        for stage, count in enumerate(blocks):
            filters = width << stage
            stride = 1 if stage == 0 else 2
            layers = [Block(channels, filters, stride)]
            layers += [Block(filters, filters, 1) for _ in range(count - 1)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
            channels = filters
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        if not self.cifar:
            x = nn.functional.max_pool2d(x, 3, 2, 1)
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean((2, 3)))


def read_safetensors(path):
    """(tensors by name, metadata)"""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype = next(key for key, value in TYPES.items() if value[0] == entry["dtype"])
        content = bytearray(data[8 + length + begin : 8 + length + end])
        tensors[name] = torch.frombuffer(content, dtype=dtype).reshape(entry["shape"])
    return tensors, metadata


def write_safetensors(path, tensors, metadata):
    """As the format's own library: larger elements first, then by name; padded to eight bytes."""
    header = {"__metadata__": metadata}
    values = b""
    for name in sorted(tensors, key=lambda name: (-TYPES[tensors[name].dtype][2], name)):
        tensor = tensors[name]
        kind, code, _ = TYPES[tensor.dtype]
        content = array.array(code, tensor.flatten().tolist()).tobytes()
        offsets = [len(values), len(values) + len(content)]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": offsets}
        values += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + values)


class Exchange:
    """One model of both programs, and images that both look at."""

    def __init__(self, rondo, folder, name, size, classes, make):
        self.rondo = rondo
        self.folder = folder
        self.name = name
        self.classes = classes
        self.make = make
        self.config = folder / "run.toml"
        self.config.write_text(
            f'[data]\nname = "synthetic"\nshape = [{size}, {size}, 3]\nclasses = {classes}\n'
            f'training = 64\ntest = 16\n[model]\nname = "{name}"\n'
            "[train]\nglobal_batch = 16\n[optimizer]\nlearning_rate = 0.01\n"
        )
        draw = random.Random(7)
        self.images = []
        self.pixels = []
        for number in range(4):
            content = bytes(draw.randrange(256) for _ in range(3 * size * size))
            path = folder / f"{number}.ppm"
            path.write_bytes(b"P6 %d %d 255\n" % (size, size) + content)
            self.images.append(path)
            image = torch.frombuffer(bytearray(content), dtype=torch.uint8)
            self.pixels.append(image.reshape(size, size, 3).permute(2, 0, 1).float() / 255)

    def run(self, *arguments):
        command = [self.rondo, *map(str, arguments)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with status {ended.returncode}: {ended.stderr}")
        return ended.stdout

    def logits_of_rondo(self, weights):
        options = ("--weights", weights, "-k", self.classes, "--format", "json")
        said = self.run("predict", self.config, *options, *self.images)
        logits = torch.zeros(len(self.images), self.classes)
        for row in json.loads(said):
            logits[self.images.index(pathlib.Path(row["image"])), row["class"]] = row["logit"]
        return logits

    def logits_of(self, model, metadata):
        mean, deviation = (
            torch.tensor(json.loads(metadata[key])).reshape(3, 1, 1) for key in ("mean", "stddev")
        )
        model.eval()
        with torch.no_grad():
            return model((torch.stack(self.pixels) - mean) / deviation)

    def compare(self, what, rondo, pytorch):
        difference = (rondo - pytorch).abs().max().item()
        largest = pytorch.abs().max().item()
        print(f"{self.name}, {what}: logits up to {largest:.3f} differ by {difference:.1e}")
        if not difference <= TOLERANCE:
            sys.exit(f"{self.name}, {what}: the logits differ by more than {TOLERANCE}")

    def from_rondo(self):
        exported = self.folder / "exported.safetensors"
        self.run("train", self.config, "--out", self.folder / "run", "-n", 1, "--threads", 1)
        self.run("export", self.folder / "run", "-o", exported)
        tensors, metadata = read_safetensors(exported)
        model = self.make()
        model.load_state_dict(tensors)  # strict: every name, every shape
        self.compare("from Rondo", self.logits_of_rondo(exported), self.logits_of(model, metadata))
        return metadata

    def from_pytorch(self, metadata):
        model = self.make()
        for module in model.modules():  # no two parameters alike, so that none can be mistaken
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias, 0.0, 0.2)
        nn.init.normal_(model.fc.weight)
        for _ in range(3):  # moves the running values of batch norm
            model(torch.randn(8, *self.pixels[0].shape))
        theirs = self.folder / "theirs.safetensors"
        write_safetensors(theirs, model.state_dict(), {"format": "pt"})
        self.compare("from PyTorch", self.logits_of_rondo(theirs), self.logits_of(model, metadata))
        return theirs

    def exported_again(self, theirs):
        first, written, second = (self.folder / f"{name}.safetensors" for name in ("a", "b", "c"))
        self.run("export", self.config, "--weights", theirs, "-o", first)
        tensors, metadata = read_safetensors(first)
        write_safetensors(written, tensors, metadata)
        self.run("export", self.config, "--weights", written, "-o", second)
        for name, value in read_safetensors(theirs)[0].items():
            if not name.endswith(".num_batches_tracked") and not torch.equal(tensors[name], value):
                sys.exit(f"{self.name}: {name} is not what PyTorch wrote")
        if not first.read_bytes() == written.read_bytes() == second.read_bytes():
            sys.exit(f"{self.name}: a file that is exported again has other bytes")
        print(f"{self.name}: exported again with the same {first.stat().st_size} bytes")


def main():
    torch.manual_seed(1)
    rondo = str(pathlib.Path(sys.argv[1]).resolve())
    models = (
        ("resnet20", 32, 10, lambda: ResNet((3, 3, 3), 16, 10, cifar=True)),
        ("resnet18", 64, 7, lambda: ResNet((2, 2, 2, 2), 64, 7, cifar=False)),
    )
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            exchange = Exchange(rondo, pathlib.Path(folder), *model)
            exchange.exported_again(exchange.from_pytorch(exchange.from_rondo()))


if __name__ == "__main__":
    main()
