#!/usr/bin/env python3
"""Images a second: the loader of `rondo bench data` with one decoder, beside PIL in one thread.

    image_loader.py RONDO FOLDER SIDE [ROUNDS]
    image_loader.py --make FOLDER COUNT SIDE

FOLDER has train/CLASS/ and val/CLASS/ with JPEG files. Both decode the files and bring them to SIDE x
SIDE by linear interpolation; rondo also normalises them to floats. They take turns, and the medians
are printed. --make writes such a folder: smooth shapes with some noise, as JPEG of quality 90. Needs
PIL (Debian: python3-pil), and is run by hand.
"""

import io
import json
import pathlib
import random
import statistics
import subprocess
import sys
import time

from PIL import Image, ImageFilter

SECONDS = 2.0  # of each turn


def pil_turn(files, side):
    """Images a second and images for each second of processor time."""
    began, cpu, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < SECONDS:
        with open(files[count % len(files)], "rb") as file:
            image = Image.open(io.BytesIO(file.read())).convert("RGB")
        if image.size != (side, side):
            image = image.resize((side, side), Image.BILINEAR)
        image.tobytes()
        count += 1
    return count / (time.perf_counter() - began), count / (time.process_time() - cpu)


def rondo_turn(program, config):
    command = [program, "bench", "data", config, "-d", "1", "--format", "json"]
    command += ["--seconds", str(SECONDS / 5)]
    row = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)[0]
    return row["images_per_second"], row["images_per_cpu_second"]


def compare(program, folder, side, rounds):
    config = pathlib.Path(folder, "image_loader.toml")
    config.write_text(
        f'[data]\nname = "folder"\npath = "{folder}"\nimage_size = {side}\ncentre_crop = 1.0\n'
        '[model]\nname = "resnet18"\n[train]\nglobal_batch = 64\n'
    )
    files = sorted(pathlib.Path(folder, "train").glob("*/*.jp*g"))
    random.Random(1).shuffle(files)
    turns = [(rondo_turn(program, config), pil_turn(files, side)) for _ in range(rounds)]
    rondo, pil = zip(*turns)
    for what, index in ("images/s", 0), ("images/s and core", 1):
        ours, theirs = (statistics.median(turn[index] for turn in of) for of in (rondo, pil))
        print(f"{what}: rondo {ours:.0f}, PIL {theirs:.0f}, ratio {ours / theirs:.2f}")


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
