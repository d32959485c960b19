"""Counts the test cases of builds, from what Meson and the test programs have written."""

import json
import re
import xml.etree.ElementTree as ElementTree


REPORT = re.compile(r"(Address|Leak|Thread)Sanitizer|: runtime error: ")


def first_line(message):
    """GoogleTest puts FILE:LINE in the first line and what is wrong behind it."""
    words = [line.strip() for line in message.strip().splitlines()]
    return ": ".join(words[:2])


class TestRun:
    """What one run of Meson's tests leaves: Meson's log, and a folder of GoogleTest's results,
    TEST.xml each."""

    def __init__(self, name, log, results):
        self.name = name
        self.log = log
        self.results = results

    def entries(self):
        """What Meson says of each test."""
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines]

    def failed_tests(self):
        """By the names that meson test takes; in its log they are "PROJECT:SUITE / NAME"."""
        failed = [entry["name"] for entry in self.entries() if entry["result"] != "OK"]
        return [name.rpartition(" / ")[2] for name in failed]

    def sanitizer_reports(self):
        """The tests that a sanitizer has reported on."""
        return [
            entry["name"]
            for entry in self.entries()
            if REPORT.search(entry.get("stdout", "") + entry.get("stderr", ""))
        ]


class Tally:
    """Cases that passed, failed and were skipped, and the seconds that tests took."""

    def __init__(self):
        self.passed = 0
        self.failed = []
        self.unstable = []  # failed first, and passed when they were run again
        self.skipped = []
        self.left_out = []  # (number of cases, why), of whole builds
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

    def count_skipped(self):
        return len(self.skipped) + sum(cases for cases, _ in self.left_out)

    def report(self):
        """Lists what was skipped and what failed, and ends with the line that counts; the status
        that the check ends with."""
        for name in self.skipped:
            print(f"skipped  {name}")
        for name in self.unstable:
            print(f"UNSTABLE {name} (passed when run again alone)")
        for name in self.failed:
            print(f"FAILED   {name}")
        for cases, reason in self.left_out:
            print(f"LEFT OUT {reason} ({cases} cases)")
        print(f"{self.passed} passed, {len(self.failed)} failed, {self.count_skipped()} skipped")
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


def add_build(tally, build, runs):
    """Counts the tests of the build named `build`. `runs` has the TestRun of all tests and, where
    tests were run again, a second one: what passed there counts as passed, and is unstable."""
    entries = runs[0].entries()
    if not entries:
        tally.failed.append(f"{build}: no test was run")
    again = {entry["name"]: entry for run in runs[1:] for entry in run.entries()}
    for entry in entries:
        second = again.get(entry["name"])
        if second is None or second["result"] != "OK":
            add_test(tally, build, entry, runs[0].results)
            continue
        first = Tally()
        add_test(first, build, entry, runs[0].results)
        tally.unstable += first.failed
        add_test(tally, build, second, runs[1].results)


def count_cases(run, without):
    """How many cases a run had, but for those of the suites `without`."""
    tally = Tally()
    for entry in run.entries():
        suites = entry["name"].partition(" / ")[0].rpartition(":")[2].split("+")
        if not set(suites) & set(without):
            add_test(tally, "", entry, run.results)
    return tally.passed + len(tally.failed) + len(tally.skipped)
