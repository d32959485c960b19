"""Counts the test cases of builds, from what Meson and the test programs have written."""

import json
import xml.etree.ElementTree as ElementTree


def first_line(message):
    """GoogleTest puts FILE:LINE in the first line and what is wrong behind it."""
    words = [line.strip() for line in message.strip().splitlines()]
    return ": ".join(words[:2])


class Tally:
    """Cases that passed, failed and were skipped, and the seconds that tests took."""

    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []
        self.seconds = []  # (seconds, test)

    def add_case(self, where, case):
        name = f"{where}: {case.get('classname')}.{case.get('name')}"
        failure = case.find("failure")
        if failure is not None:
            self.failed.append(f"{name}: {first_line(failure.get('message', ''))}")
        elif case.get("status") == "notrun":
            self.skipped.append(f"{name}: disabled")
        elif case.get("result") == "skipped":
            reason = case.find("skipped")
            message = reason.get("message", "") if reason is not None else ""
            self.skipped.append(f"{name}: {message.strip().splitlines()[-1] if message else ''}")
        else:
            self.passed += 1

    def report(self):
        """Lists what was skipped and what failed, and ends with the line that counts; the status
        that the check ends with."""
        for name in self.skipped:
            print(f"skipped  {name}")
        for name in self.failed:
            print(f"FAILED   {name}")
        print(f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped")
        return 1 if self.failed else 0


def add_test(tally, build, entry, results):
    """A test is one GoogleTest program with results, or a command that counts as one case. One that
    crashed, timed out or left no results counts as one failed case; so does one that failed although
    its cases passed (a leak, say)."""
    name = entry.get("env", {}).get("RONDO_TEST")
    where = f"{build}: {name or entry['name']}"
    tally.seconds.append((entry["duration"], where))
    failed_before = len(tally.failed)
    file = results / f"{name}.xml"
    if name is None:
        tally.passed += entry["result"] == "OK"
    elif file.exists():
        try:
            for case in ElementTree.parse(file).getroot().iter("testcase"):
                tally.add_case(where, case)
        except ElementTree.ParseError:
            tally.failed.append(f"{where}: its results cannot be read")
    elif entry["result"] == "OK":
        tally.failed.append(f"{where}: left no results")
    if entry["result"] != "OK" and len(tally.failed) == failed_before:
        tally.failed.append(
            f"{where}: {entry['result']} after {entry['duration']:.0f} s"
            f" (status {entry['returncode']})"
        )


def add_build(tally, build, log, results):
    """Counts the tests of the build named `build`: `log` is Meson's, `results` a folder of
    GoogleTest's, TEST.xml each."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    if not lines:
        tally.failed.append(f"{build}: no test was run")
    for line in lines:
        add_test(tally, build, json.loads(line), results)
