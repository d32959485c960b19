#!/usr/bin/env python3
"""Images a second: the loader of `rondo bench data` with one decoder, beside PIL in one thread.

    image_loader.py RONDO FOLDER SIDE [ROUNDS]
    image_loader.py --make FOLDER COUNT SIDE

FOLDER has train/CLASS/ and val/CLASS/ with JPEG files. Both decode the files and bring them to SIDE x
SIDE by linear interpolation: the whole image, then random resized crops of it. Rondo also normalises
them to floats; PIL is timed without that, with it (by NumPy), and decoding alone, which both do by
libjpeg-turbo. All take turns, and the medians are printed, by processor time. --make writes such a
folder: smooth shapes with some noise, as JPEG of quality 90. Needs PIL and NumPy (Debian: python3-pil,
python3-numpy), and is run by hand.
"""

import io
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import time

import numpy
from PIL import Image, ImageFilter

SECONDS = 2.0  # of each turn
MEAN = numpy.array([0.485, 0.456, 0.406], numpy.float32)
DEVIATION = numpy.array([0.229, 0.224, 0.225], numpy.float32)


def window(width, height, random_crop):
    """The whole image, or as random_resized_crop draws it, as the corners of a box."""
    if not random_crop:
        return 0, 0, width, height
    while True:
        area = width * height * random.uniform(0.08, 1.0)
        relation = math.exp(random.uniform(-1, 1) * math.log(4 / 3))
        right, down = round(math.sqrt(area * relation)), round(math.sqrt(area / relation))
        if 0 < right <= width and 0 < down <= height:
            left, top = random.randint(0, width - right), random.randint(0, height - down)
            return left, top, left + right, top + down


def decode(file, side, random_crop):
    return file.convert("RGB")


def reduce(file, side, random_crop):
    image = file.convert("RGB")
    box = window(*image.size, random_crop)
    if box != (0, 0, *image.size):
        image = image.crop(box)
    return image if image.size == (side, side) else image.resize((side, side), Image.BILINEAR)


def normalise(file, side, random_crop):
    pixels = numpy.asarray(reduce(file, side, random_crop), numpy.float32)
    return (pixels / 255 - MEAN) / DEVIATION


def pil_turn(work, files, side, random_crop):
    """Images for each second of processor time."""
    began, cpu, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < SECONDS:
        with open(files[count % len(files)], "rb") as file:
            work(Image.open(io.BytesIO(file.read())), side, random_crop)
        count += 1
    return count / (time.process_time() - cpu)


def rondo_turn(program, config):
    command = [program, "bench", "data", config, "-d", "1", "--format", "json"]
    command += ["--seconds", str(SECONDS / 5)]
    row = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)[0]
    return row["images_per_cpu_second"]


def compare(program, folder, side, rounds):
    files = sorted(pathlib.Path(folder, "train").glob("*/*.jp*g"))
    random.Random(1).shuffle(files)
    for what, augment in ("whole images", ""), ("random crops", '"random_resized_crop"'):
        config = pathlib.Path(folder, "image_loader.toml")
        config.write_text(
            f'[data]\nname = "folder"\npath = "{folder}"\nimage_size = {side}\ncentre_crop = 1.0\n'
            f"augment = [{augment}]\n"
            '[model]\nname = "resnet18"\n[train]\nglobal_batch = 64\n'
        )
        works = reduce, normalise, decode
        turns = [
            (rondo_turn(program, config), *(pil_turn(work, files, side, augment) for work in works))
            for _ in range(rounds)
        ]
        rondo, plain, normalised, decoded = (statistics.median(of) for of in zip(*turns))
        print(
            f"{what}: rondo {rondo:.0f}, PIL {plain:.0f} (ratio {rondo / plain:.2f}), normalised by"
            f" NumPy {normalised:.0f} ({rondo / normalised:.2f}), PIL decoding alone {decoded:.0f}"
        )


def make(folder, count, side):
    numbers = random.Random(1)
    for index in range(count + 10):
        noise = Image.frombytes("RGB", (side, side), numbers.randbytes(3 * side * side))
        shapes = Image.frombytes("RGB", (8, 8), numbers.randbytes(192)).resize((side, side))
        image = Image.blend(shapes, noise.filter(ImageFilter.GaussianBlur(1)), 0.3)
        path = pathlib.Path(folder, "train" if index < count else "val", f"class{index % 2}")
        path.mkdir(parents=True, exist_ok=True)
        image.save(path / f"{index}.jpg", quality=90)


if __name__ == "__main__":
    if sys.argv[1] == "--make":
        make(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        compare(sys.argv[1], sys.argv[2], int(sys.argv[3]), int((sys.argv + ["5"])[4]))
