"""Counts the GoogleTest cases of one or more builds that tools/check has tested.

    test_summary.py [--broken NAME]... BUILD...

Each BUILD holds meson-logs/testlog*.json, which says how every test program ended, and
gtest-results/PROGRAM.xml, which says the same of its cases. A program that crashed, timed out or
left no results counts as one failed case; so does one that failed although its cases passed (a
leak, say), and every --broken build. Lists what failed and what was skipped; the last line is
"N passed, N failed, N skipped". The exit status is 1 when something failed.
"""

import argparse
import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


class Tally:
    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []

    def add_case(self, where, case):
        name = f"{where}: {case.get('classname')}.{case.get('name')}"
        if case.find("failure") is not None:
            self.failed.append(name)
        elif case.get("status") == "notrun":
            self.skipped.append(f"{name}: disabled")
        elif case.get("result") == "skipped":
            reason = case.find("skipped")
            message = reason.get("message", "") if reason is not None else ""
            # GoogleTest puts FILE:LINE in the first line and the reason behind it.
            self.skipped.append(f"{name}: {message.strip().splitlines()[-1] if message else ''}")
        else:
            self.passed += 1


def program_of(entry):
    """The test program in a command line that may begin with the wrapper."""
    words = [word for word in entry["command"] if not word.endswith("/gtest-wrapper")]
    return pathlib.Path(words[0]).name


def add_program(tally, build, entry):
    program = program_of(entry)
    where = f"{build.name}: {program}"
    results = build / "gtest-results" / f"{program}.xml"
    failed_before = len(tally.failed)
    if results.exists():
        try:
            for case in ElementTree.parse(results).getroot().iter("testcase"):
                tally.add_case(where, case)
        except ElementTree.ParseError:
            tally.failed.append(f"{where}: its results cannot be read")
    elif entry["result"] == "OK":
        tally.failed.append(f"{where}: left no results")
    if entry["result"] != "OK" and len(tally.failed) == failed_before:
        tally.failed.append(f"{where}: {entry['result']} (status {entry['returncode']})")


def add_build(tally, build):
    entries = []
    for log in (build / "meson-logs").glob("testlog*.json"):
        entries += [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    if not entries:
        tally.failed.append(f"{build.name}: no test was run")
    for entry in entries:
        add_program(tally, build, entry)


def main():
    parser = argparse.ArgumentParser(description="Counts the GoogleTest cases of builds.")
    parser.add_argument("--broken", action="append", default=[], metavar="NAME")
    parser.add_argument("builds", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()

    tally = Tally()
    tally.failed += [f"{name}: did not get as far as its tests" for name in arguments.broken]
    for build in arguments.builds:
        add_build(tally, build)
    for name in tally.skipped:
        print(f"skipped  {name}")
    for name in tally.failed:
        print(f"FAILED   {name}")
    print(f"{tally.passed} passed, {len(tally.failed)} failed, {len(tally.skipped)} skipped")
    sys.exit(1 if tally.failed else 0)


if __name__ == "__main__":
    main()
