#!/usr/bin/env python3
"""The share of each module's lines that tests have run.

    meson setup build-coverage --buildtype=debug -Doptimization=1 -Db_coverage=true -Dtests=enabled
    ninja -C build-coverage && meson test -C build-coverage --no-suite slow
    tools/dev/coverage.py build-coverage

A line counts once, however many programs hold it, and as run when one of them has run it.
"""

import concurrent.futures
import json
import pathlib
import subprocess
import sys

MODULES = ("transport", "tensor", "sync", "train", "tools")


def lines_of(folder, data):
    """{file: {line: was it run?}} of one object file, for the project's own sources."""
    said = subprocess.run(
        ["gcov", "--json-format", "--stdout", str(data)],
        cwd=folder,
        capture_output=True,
        check=True,
    ).stdout
    root = folder.parent
    found = {}
    for line in said.splitlines():
        for source in json.loads(line)["files"]:
            path = (folder / source["file"]).resolve()
            if not path.is_relative_to(root) or path.is_relative_to(folder):
                continue
            name = path.relative_to(root)
            if name.parts[0] not in MODULES:
                continue
            lines = found.setdefault(str(name), {})
            for entry in source["lines"]:
                # Threads may lose counts, and even make them negative; run is run.
                number = entry["line_number"]
                lines[number] = lines.get(number, False) or entry["count"] != 0
    return found


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1]).resolve()
    merged = {}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        objects = sorted(folder.rglob("*.gcda"))
        if not objects:
            sys.exit(f"{folder}: no test of a build with -Db_coverage=true has run here")
        for found in pool.map(lambda data: lines_of(folder, data), objects):
            for name, lines in found.items():
                into = merged.setdefault(name, {})
                for number, was_run in lines.items():
                    into[number] = into.get(number, False) or was_run
    print(f"{'module':10} {'lines':>7} {'run':>7} {'share':>7}")
    for module in MODULES:
        lines = [
            was_run
            for name, of in merged.items()
            if name.startswith(module + "/")
            for was_run in of.values()
        ]
        if lines:
            print(f"{module:10} {len(lines):7} {sum(lines):7} {100 * sum(lines) / len(lines):6.1f} %")


if __name__ == "__main__":
    main()
