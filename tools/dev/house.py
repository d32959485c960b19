#!/usr/bin/env python3
"""Prints how large the project's C++ files are, and fails where a module exceeds its budget.

    tools/dev/house.py               the tracked files of the working tree
    tools/dev/house.py --at COMMIT   those of a commit
    tools/dev/house.py --long        besides, every file and function that is too long

A budget is what a module may have; whoever needs more takes something down first, and whoever takes
something down lowers the budget with it. The goal is where the project wants to be. Circles are
pairs of folders of one module that include each other. Inverted sentences are those of comments
that begin with Of, What, Who, Those or That.

Boilerplate is what every file has whatever it does: blank lines, includes, pragmas, and the lines
that open and close a namespace. A line counts as comment when nothing else is on it. Functions are
found by their braces, which is right for code that clang-format has laid out.
"""

import argparse
import io
import pathlib
import re
import statistics
import subprocess
import sys
import tarfile

MODULES = ("transport", "tensor", "sync", "train", "tools", "bindings")
ENDINGS = (".cpp", ".hpp", ".h", ".inc")
SHORT_FILE = 40
LONG_FILE = 600
LONG_FUNCTION = 60

GOALS = ("goal", "", "", 110, 0.10, 0.20, "12-18%", 0, 0)

# Of each module: lines, circles, inverted sentences; and the lines that it is to have.
BUDGETS = {
    "transport": (28_650, 0, 0, 25_500),
    "tensor": (7_950, 0, 0, 6_500),
    "sync": (7_000, 0, 0, 6_800),
    "train": (32_300, 0, 0, 25_000),
    "tools": (16_560, 0, 0, 13_500),
    "bindings": (3_500, 0, 0, 3_500),
    "tests": (64_450, 0, 0, 58_000),
}

BOILERPLATE = re.compile(
    r"""\s*$                                          # blank
    | \#\s*(include|pragma)\b
    | (inline\s+)?namespace\b[^=;]*\{(\s*\})?\s*$     # opens; not an alias
    | \}\s*//\s*(anonymous\s+)?namespace\b            # closes
    """,
    re.VERBOSE,
)
COMMENT = re.compile(r"\s*//")
COMMENTS = re.compile(r"(?:^[ \t]*//[^\n]*\n)+", re.MULTILINE)
INVERTED = re.compile(r"(?:^|(?<=\. ))(?:Of|What|Who|Those|That)\b(?! (?:is|was|are) )")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
# Literals and comments, in which braces mean nothing.
TEXT = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | R"([^\s()]*)\(.*?\)\1"
    | "(?:\\.|[^"\\\n])*" | (?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])*'""",
    re.VERBOSE | re.DOTALL,
)


class Source:
    """A file: its lines by kind, and its functions."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        lines = text.splitlines()
        self.lines = len(lines)
        self.boilerplate = sum(bool(BOILERPLATE.match(line)) for line in lines)
        self.comments = sum(bool(COMMENT.match(line)) for line in lines) - sum(
            bool(COMMENT.match(line) and BOILERPLATE.match(line)) for line in lines
        )

    def inverted_sentences(self):
        found = 0
        for block in COMMENTS.findall(self.text):
            words = " ".join(line.strip().lstrip("/<").strip() for line in block.splitlines())
            found += len(INVERTED.findall(words))
        return found

    def functions(self):
        """(lines, line at which it begins) of each function outside of other functions."""
        blank = lambda match: re.sub(r"[^\n]", " ", match.group())
        code = re.sub(r"^\s*#.*$", blank, TEXT.sub(blank, self.text), flags=re.MULTILINE)
        found = []
        kinds = []  # of the braces that are open: "scope", "function" or "other"
        begin = 0  # of the statement that is being read
        for brace in re.finditer(r"[{};]", code):
            at = brace.end()
            if brace.group() == "{":
                head = code[begin : brace.start()]
                kind = "other"
                if re.search(r"\bnamespace\b|\bextern\s", head) or re.search(
                    r"^\s*(template\s*<.*>\s*)?(class|struct|union|enum)\b", head, re.DOTALL
                ):
                    kind = "scope"
                elif "(" in head and "function" not in kinds:
                    kind = "function"
                kinds.append(kind)
                if kind == "function":
                    start = begin + len(head) - len(head.lstrip())
            elif brace.group() == "}" and kinds and kinds.pop() == "function":
                first = code.count("\n", 0, start) + 1
                found.append((code.count("\n", 0, at) + 2 - first, first))
            if "function" not in kinds:
                begin = at
        return found


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True).stdout


def tree_files(root):
    for name in git("-C", str(root), "ls-files").decode().splitlines():
        path = root / name
        if path.is_file():  # and not deleted
            yield name, path.read_bytes()


def commit_files(root, commit):
    archive = tarfile.open(fileobj=io.BytesIO(git("-C", str(root), "archive", commit)))
    for member in archive:
        if member.isfile():
            yield member.name, archive.extractfile(member).read()


def sources_of(files):
    """Sources by module; "tests" is one of them."""
    modules = {name: [] for name in (*MODULES, "tests")}
    for name, content in files:
        module = name.split("/")[0]
        if module in modules and name.endswith(ENDINGS):
            modules[module].append(Source(name, content.decode(errors="replace")))
    return modules


def circles(name, sources):
    """Pairs of folders of a module's src/ that include each other."""
    paths = {source.path for source in sources}
    arrows = set()
    for source in sources:
        parts = source.path.split("/")
        if parts[1] != "src" or len(parts) < 4:
            continue
        for header in INCLUDE.findall(source.text):
            if "/" in header and f"{name}/src/{header}" in paths:
                arrows.add((parts[2], header.split("/")[0]))
    return sorted((a, b) for a, b in arrows if a < b and (b, a) in arrows)


def print_budgets(modules):
    """True where each module keeps to its budget."""
    kept = True
    print()
    print("             lines  budget    goal  circles  budget  inverted  budget")
    for name, (lines, pairs, inverted, goal) in BUDGETS.items():
        sources = modules[name]
        has = (
            sum(source.lines for source in sources),
            len(circles(name, sources)),
            sum(source.inverted_sentences() for source in sources),
        )
        print(f"{name:<10}{has[0]:8}{lines:8}{goal:8}{has[1]:9}{pairs:8}{has[2]:10}{inverted:8}")
        for what, count, most in zip(("lines", "circles", "inverted sentences"), has, (lines, pairs, inverted)):
            if count > most:
                kept = False
                print(f"{name} has {count} {what}, and its budget is {most}: take something down first")
    for name in BUDGETS:
        pairs = circles(name, modules[name])
        if pairs:
            print(f"circles in {name}: " + ", ".join(" and ".join(pair) for pair in pairs))
    return kept


def share(part, whole):
    return part / whole if whole else 0.0


def row(name, sources):
    lines = sum(source.lines for source in sources)
    return (
        name,
        len(sources),
        lines,
        int(statistics.median(source.lines for source in sources)) if sources else 0,
        share(sum(source.lines <= SHORT_FILE for source in sources), len(sources)),
        share(sum(source.boilerplate for source in sources), lines),
        share(sum(source.comments for source in sources), lines),
        sum(source.lines > LONG_FILE for source in sources),
        sum(length > LONG_FUNCTION for source in sources for length, _ in source.functions()),
    )


def print_row(values):
    cells = [f"{value:.0%}" if isinstance(value, float) else str(value) for value in values]
    widths = (10, 6, 8, 7, 6, 12, 8, 6, 15)
    print(cells[0].ljust(widths[0]) + "".join(map(str.rjust, cells[1:], widths[1:])))


def print_house(root=pathlib.Path("."), commit=None, with_names=False):
    """False where a budget is exceeded."""
    modules = sources_of(commit_files(root, commit) if commit else tree_files(root))
    house = [source for name in MODULES for source in modules[name]]
    print_row(
        (
            "",
            "files",
            "lines",
            "median",
            f"<= {SHORT_FILE}",
            "boilerplate",
            "comment",
            f"> {LONG_FILE}",
            f"functions > {LONG_FUNCTION}",
        )
    )
    for name in MODULES:
        print_row(row(name, modules[name]))
    print_row(row("all six", house))
    print_row(row("tests", modules["tests"]))
    print_row(GOALS)
    if with_names:
        print_long([*house, *modules["tests"]])
    return print_budgets(modules)


def print_long(sources):
    for source in sources:
        if source.lines > LONG_FILE:
            print(f"{source.path}: {source.lines} lines")
        for length, first in source.functions():
            if length > LONG_FUNCTION:
                print(f"{source.path}:{first}: a function of {length} lines")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--at", metavar="COMMIT")
    parser.add_argument("--long", action="store_true")
    arguments = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parents[2]
    sys.exit(0 if print_house(root, arguments.at, arguments.long) else 1)


if __name__ == "__main__":
    main()
