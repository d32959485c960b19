"""The checks of tools/check, which installs what they need and says what each option does."""

import argparse
import itertools
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import time

from house import print_house
from phases import Runner
from test_summary import Tally, TestRun, add_build, count_cases

ROOT = pathlib.Path("build-check")

# Sanitized code is slow without any optimisation, builds slowly with all of it, and links slowly
# with more than lines to name.
SANITIZED = [
    "--buildtype=debug",
    "-Doptimization=1",
    "-Dcpp_args=-g1",
    "-Dbenchmarks=disabled",
    "-Db_lundef=false",
    "-Dtorch=disabled",
]
# More tests than this fail together for a reason that stays when they are run again.
MOST_REPEATED = 5
GCC = ("gcc", "g++")
CLANG = ("clang-19", "clang++-19")


class Build:
    """A build folder: its compiler, Meson's options, Meson's test setup, which suites run, and in
    which release of Debian; on this machine itself when that is None."""

    def __init__(self, name, compiler, options, setup=None, suites=(), without=(), release=None):
        self.name = name
        self.folder = ROOT / name
        self.compiler = compiler
        self.options = options
        self.setup = setup
        self.suites = suites  # all of them when empty
        self.without = without
        self.release = release
        self.checkout = pathlib.Path("/rondo") if release else pathlib.Path.cwd()

    def command(self, *words, **environment):
        """What runs `words` with these variables in the folder of this build, where it is made."""
        # So that clones share what they have compiled.
        environment |= {"CCACHE_BASEDIR": self.checkout, "CCACHE_NOHASHDIR": 1}
        variables = [f"{name}={value}" for name, value in environment.items()]
        command = ["env", "-C", str(self.checkout / self.folder), *variables, *words]
        if not self.release:
            return command
        system = ["tools/dev/new-system", "run", self.release]
        system += ["--bind", str(self.folder), str(self.checkout / self.folder)]
        return [*system, "--bind", compiler_cache(), "/root/.cache/ccache", *command]

    def test_run(self, tests=()):
        """A run of the tests of this build's suites, or again of the tests named."""
        name = "again" if tests else "-".join(self.suites) or "all"
        log = self.folder / "meson-logs" / f"{name}-gtest-wrapper.json"
        return TestRun(name, log, self.folder / f"results-{name}")


def compiler_cache():
    command = ["ccache", "--get-config", "cache_dir"]
    folder = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    return folder


RELEASE = Build("release", GCC, ["--buildtype=release", "-Dbenchmarks=disabled"], without=["slow"])
# Tests on several hosts and in virtual machines are about the kernel, which is the same here and there.
OTHER = "bookworm" if platform.freedesktop_os_release().get("VERSION_CODENAME") == "trixie" else "trixie"
OTHER_RELEASE = Build(
    OTHER,
    GCC,
    [*RELEASE.options, "-Dtorch=disabled"],
    without=["hosts", "rdma", *RELEASE.without],
    release=OTHER,
)
# About half of what all that comes before it in --ci takes: it ends before a limit of 87 minutes.
CI_MINUTES_FOR_OTHER = 30
SLOW = Build("release", GCC, RELEASE.options, suites=["slow"])
ADDRESS = Build(
    "address",
    CLANG,
    [*SANITIZED, "-Db_sanitize=address,undefined"],
    "sanitizer",
    without=["examples", "slow"],
)
ADDRESS_SLOW = Build("address", CLANG, ADDRESS.options, "sanitizer", suites=["slow"])
THREAD = Build(
    "thread",
    CLANG,
    [*SANITIZED, "-Db_sanitize=thread"],
    "sanitizer",
    suites=["threads", "loader-threads"],
)
# An hour is enough for --ci without what is compiled once more for the fuzzers' seeds and the loader.
ADDRESS_CI = Build(
    "address", CLANG, [*ADDRESS.options, "-Dfuzzers=disabled"], "sanitizer", without=ADDRESS.without
)
THREAD_CI = Build("thread", CLANG, THREAD.options, "sanitizer", suites=["threads"])
BENCHMARKS = Build(
    "benchmarks", GCC, ["--buildtype=release", "-Dtests=disabled", "-Dbenchmarks=enabled"]
)
# Each source by itself: shows what one includes only because another one has.
SEPARATE = Build("separate", GCC, ["--buildtype=debug", "--unity=off", "-Dbenchmarks=enabled"])
TIDY = Build("tidy", CLANG, ["--buildtype=debug", "--unity=off", "-Dtests=disabled"])


def introspect(build, what):
    said = subprocess.run(
        ["meson", "introspect", f"--{what}", str(build.folder)],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(said.stdout)


def test_targets(build):
    """What Ninja must build for the tests of a build's suites."""
    files = {target["id"]: target["filename"] for target in introspect(build, "targets")}
    targets = set()
    for test in introspect(build, "tests"):
        if {suite.split(":")[-1] for suite in test["suite"]} & set(build.suites):
            targets.add(test["cmd"][0])
            for dependency in test["depends"]:
                targets.update(files.get(dependency, []))
    folder = str(build.folder.resolve()) + "/"
    return sorted(target.removeprefix(folder) for target in targets)


def failed_units(lines):
    """Of what Ninja has said: the files that could not be made, with the first error of each."""
    units = []
    for at, line in enumerate(lines):
        if not line.startswith("FAILED: "):
            continue
        unit = line.removeprefix("FAILED: ").strip()
        following = itertools.takewhile(lambda text: not text.startswith("FAILED: "), lines[at + 1 :])
        error = next((text.strip() for text in following if re.search(r"\berror\b", text)), "")
        units.append(f"{unit} cannot be built: {error}" if error else f"{unit} cannot be built")
    return units


class Check:
    """Runs phases and counts what they say. With `repeat`, tests that fail are run once more."""

    def __init__(self, limit_minutes, repeat=False):
        self.runner = Runner(limit_minutes)
        self.repeat = repeat
        self.tally = Tally()
        self.builds = []

    def run(self, name, command):
        """A phase that counts as one failed case when it fails."""
        phase = self.runner.run(name, command)
        if not phase.passed:
            self.fail(phase)
        return phase.passed

    def run_where_possible(self, name, command):
        """As run(); status 77 says that something is absent, and the last line what."""
        phase = self.runner.run(name, command)
        if phase.status == 77 and not phase.ended_because:
            self.tally.skipped.append(f"{name}: {phase.lines[-1] if phase.lines else ''}")
        elif not phase.passed:
            self.fail(phase)

    def fail(self, phase, reasons=()):
        if phase.ended_because:
            running = ", ".join(phase.running_then)
            reasons = [phase.ended_because + (f"; still running: {running}" if running else "")]
        for reason in reasons or [f"failed with status {phase.status}, see above"]:
            self.tally.failed.append(f"{phase.name}: {reason}")

    def forgive_limit(self, name):
        """Counts it as no failure that the limit ended this build or its tests, and says that it
        did."""
        phases = [phase for phase in self.runner.phases if phase.name.startswith(f"{name}: ")]
        reasons = [phase.ended_because for phase in phases if phase.ended_because]
        if not reasons or self.runner.interrupted:
            return ""
        cut = tuple(f"{phase.name}: {phase.ended_because}" for phase in phases if phase.ended_because)
        self.tally.failed = [
            text
            for text in self.tally.failed
            if not text.startswith(cut) and not (text.startswith(f"{name}: ") and ": INTERRUPT " in text)
        ]
        return reasons[0]

    def build(self, build):
        return self.configure(build) and self.compile(build)

    def configure(self, build):
        if (build.folder / "build.ninja").exists():
            # The lists of tests are those of the last configuration.
            return self.run(f"{build.name}: set up", build.command("ninja", "--quiet", "build.ninja"))
        cache = "ccache " if shutil.which("ccache") else ""
        environment = {"CC": cache + build.compiler[0], "CXX": cache + build.compiler[1]}
        if shutil.which("mold"):
            environment["CXX_LD"] = "mold"
        options = list(build.options)
        if "-Dtests=disabled" not in options:
            options.append("-Dtests=enabled")
        shutil.rmtree(build.folder, ignore_errors=True)
        build.folder.mkdir()
        words = ["meson", "setup", "--werror", ".", str(build.checkout), *options]
        return self.run(f"{build.name}: set up", build.command(*words, **environment))

    def compile(self, build):
        targets = test_targets(build) if build.suites else []
        command = build.command("ninja", "-k", "0", *targets)
        self.builds.append((build, time.time()))
        phase = self.runner.run(f"{build.name}: build", command)
        if not phase.passed:
            self.fail(phase, failed_units(phase.lines))
        return phase.passed

    def test(self, build):
        runs = [self.run_tests(build)]
        failed = runs[0].failed_tests()
        # What a sanitizer has seen once is wrong, whether it is seen again or not.
        certain = len(failed) > MOST_REPEATED or runs[0].sanitizer_reports()
        if self.repeat and failed and not certain:
            runs.append(self.run_tests(build, failed))
        add_build(self.tally, build.name, runs)

    def run_tests(self, build, tests=()):
        """Runs the tests of a build's suites, or the tests named, these one at a time."""
        run = build.test_run(tests)
        shutil.rmtree(run.results, ignore_errors=True)
        run.results.mkdir(parents=True)
        run.log.unlink(missing_ok=True)
        command = ["meson", "test", "--no-rebuild", "--print-errorlogs"]
        command += ["--wrapper", str(build.checkout / "tools/dev/gtest-wrapper")]
        command += ["--logbase", run.name]
        if build.setup:
            command += ["--setup", build.setup]
        for suite in build.without:
            command += ["--no-suite", suite]
        for suite in build.suites:
            command += ["--suite", suite]
        # Tests wait for deadlines and for each other's ranks a sixth of the time.
        processes = 1 if tests else len(os.sched_getaffinity(0)) + 1
        command += ["--num-processes", str(processes), *tests]
        phase = self.runner.run(
            f"{build.name}: test{' again' if tests else ''}",
            build.command(*command, RONDO_TEST_RESULTS=build.checkout / run.results),
        )
        if phase.ended_because:
            self.fail(phase)
        return run


def check_format(check):
    files = subprocess.run(
        ["git", "ls-files", "*.[ch]", "*.cpp", "*.hpp"], check=True, capture_output=True, text=True
    ).stdout.split()
    check.run("clang-format", ["clang-format-19", "--dry-run", "-Werror", *files])


def check_release(check):
    check_format(check)
    check.run("cost of a header", ["tools/dev/header-cost"])
    if check.build(RELEASE):
        check.test(RELEASE)


def check_other_release(check, minutes=0, required=False):
    """The tests in the other Debian. Without its archive, or so many minutes, they are left out, but
    where `required`."""
    build = OTHER_RELEASE

    def leave_out(reason):
        cases = max(1, count_cases(RELEASE.test_run(), build.without))
        check.tally.left_out.append((cases, f"{build.name}: {reason}"))

    if check.runner.minutes_left() < minutes:
        leave_out(f"less than {minutes} minutes were left for it")
        return
    phase = check.runner.run(f"{build.name}: system", ["tools/dev/new-system", "keep", OTHER, "build", "check"])
    if phase.passed:
        if check.build(build):
            check.test(build)
        if minutes:
            late = check.forgive_limit(build.name)
            if late:
                leave_out(late)
    elif not phase.ended_because and (phase.status == 77 or phase.status == 75 and not required):
        leave_out(phase.lines[-1].strip() if phase.lines else "")
    else:
        check.fail(phase)


def check_sanitized(check, builds=(ADDRESS, THREAD)):
    for build in builds:
        if check.build(build):
            check.test(build)


def check_pytorch(check):
    """Weights go to PyTorch and back; left out where Debian's python3-torch is absent."""
    name = "exchange with PyTorch"
    python = "/usr/bin/python3"  # whose packages are Debian's
    found = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
    if found.returncode != 0:
        check.tally.skipped.append(f"{name}: the package python3-torch is absent")
        return
    rondo = RELEASE.folder / "tools" / "rondo"
    check.run(name, [python, "tests/tools/pytorch_exchange.py", str(rondo)])
    name = "backend of torch.distributed"
    if not list((RELEASE.folder / "bindings" / "torch").glob("*.so")):
        check.tally.skipped.append(f"{name}: the package libtorch-dev or pybind11-dev is absent")
        return
    command = ["meson", "devenv", "-C", str(RELEASE.folder)]
    for test in ("backend_test.py", "backend_lifetime_test.py", "features_test.py"):
        path = pathlib.Path("tests/torch", test).resolve()
        check.run(f"{name}, {test}", [*command, python, str(path)])


def check_rest(check):
    check.test(SLOW)  # boots virtual machines, and a browser
    check.test(ADDRESS_SLOW)
    check.build(SEPARATE)
    if check.configure(TIDY):
        sources = f"^{re.escape(str(pathlib.Path.cwd()))}/(transport|tensor|sync|train|tools|examples)/"
        check.run("clang-tidy", ["run-clang-tidy-19", "-quiet", "-p", str(TIDY.folder), sources])
    if check.build(BENCHMARKS):
        folder = BENCHMARKS.folder / "tests" / "benchmark"
        check.run("messages inside a node", [str(folder / "shm-link-benchmark")])
        check.run("collectives of many ranks", [str(folder / "simulate-collectives"), "check"])
    library = SEPARATE.folder / "bindings" / "c" / "librondo.so"
    check.run_where_possible("C interface", ["tools/dev/check-abi", str(library)])
    for release in ("bookworm", "trixie"):
        command = ["tools/dev/check-packages", release]
        check.run_where_possible(f"Debian packages of {release}", command)
    check.run("wraps", ["tools/dev/check-wraps"])
    check.run("documents", ["tools/dev/check-docs"])
    check.run("API reference", ["tools/dev/api-reference"])
    check.run("quickstart", ["tools/quickstart"])
    check_pytorch(check)


def slowest_units(builds):
    """(seconds, file) of what was built since each build began."""
    units = []
    for build, began in builds:
        log = build.folder / ".ninja_log"
        for line in log.read_text(encoding="utf-8").splitlines()[1:] if log.exists() else []:
            start, end, written, path = line.split("\t")[:4]
            if int(written) >= began * 1e9:
                units.append(((int(end) - int(start)) / 1000, f"{build.name}: {path}"))
    return sorted(units, reverse=True)


def print_times(check):
    print("\n== seconds: wall, CPU")
    for phase in check.runner.phases:
        print(f"{phase.wall:8.1f} {phase.cpu:8.1f}  {phase.name}")
    wall, cpu = check.runner.seconds()
    print(f"{wall:8.1f} {cpu:8.1f}  all")
    for title, rows in (
        ("slowest tests", sorted(check.tally.seconds, reverse=True)),
        ("slowest units", slowest_units(check.builds)),
    ):
        print(f"\n== {title}, seconds")
        for seconds, name in rows[:10]:
            print(f"{seconds:8.1f}  {name}")


def main():
    parser = argparse.ArgumentParser(prog="tools/check", add_help=False)
    mode = parser.add_mutually_exclusive_group()
    for name in ("sanitize", "other-debian", "ci", "full"):
        mode.add_argument(f"--{name}", dest="mode", action="store_const", const=name)
    parser.add_argument("--limit", type=float, default=80, metavar="MINUTES")
    arguments = parser.parse_args()

    ROOT.mkdir(exist_ok=True)
    check = Check(arguments.limit, repeat=arguments.mode == "ci")
    # A request to stop ends what runs, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if arguments.mode in (None, "ci", "full"):
        check_release(check)
    if arguments.mode in ("other-debian", "full"):
        check_other_release(check, required=arguments.mode == "full")
    if arguments.mode == "ci":
        check_sanitized(check, (ADDRESS_CI, THREAD_CI))
        check_other_release(check, minutes=CI_MINUTES_FOR_OTHER)
    elif arguments.mode in ("sanitize", "full"):
        check_sanitized(check)
    if arguments.mode == "full":
        check_rest(check)
    print_times(check)
    print("\n== sizes, see tools/dev/house.py")
    if not print_house(pathlib.Path()):
        check.tally.failed.append("sizes: a budget of tools/dev/house.py is exceeded, see above")
    print()
    sys.exit(check.tally.report())


if __name__ == "__main__":
    main()
