"""Commands of a check, run one after another under one time limit.

A Phase is a command with the seconds it took. When the limit passes, or somebody presses Ctrl-C, the
command is ended with everything that it has started, and what ran at that moment is named: tests by
the name that Meson puts into RONDO_TEST, compilers by the file that they write.
"""

import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import threading
import time

# What builds and tests tell while all is well: on a terminal one line that is written over.
PROGRESS = re.compile(r"\[\d+/\d+\] |\s*\d+/\d+ .* OK ")


def children_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Process:
    """What /proc says of a process."""

    def __init__(self, pid):
        self.pid = pid
        folder = pathlib.Path("/proc") / str(pid)
        # The name in parentheses may hold anything; behind it come the state and the parent.
        self.parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        self.words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        self.environment = (folder / "environ").read_bytes().decode(errors="replace").split("\0")

    def name(self):
        for variable in self.environment:
            if variable.startswith("RONDO_TEST="):
                return variable.partition("=")[2]
        if "-c" in self.words and "-o" in self.words[:-1]:
            return self.words[self.words.index("-o") + 1]
        return ""


def descendants(pid):
    processes = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            process = Process(int(entry.name))
        except OSError:
            continue  # it has ended meanwhile
        processes[process.pid] = process
    found = []
    level = {pid}
    while level:
        level = {p.pid for p in processes.values() if p.parent in level}
        found += [processes[p] for p in level]
    return found


class Phase:
    """One command: what it is called, how it ended, and how long it took."""

    def __init__(self, name):
        self.name = name
        self.wall = 0.0
        self.cpu = 0.0
        self.status = None
        self.ended_because = ""  # of the limit, or of Ctrl-C
        self.running_then = []
        self.lines = []  # what it has said, but for progress

    @property
    def passed(self):
        return self.status == 0 and not self.ended_because


class Runner:
    """Runs phases until `limit_minutes` have passed since it was made."""

    def __init__(self, limit_minutes):
        self.limit_minutes = limit_minutes
        self.began = time.monotonic()
        self.deadline = self.began + 60 * limit_minutes
        self.phases = []
        self.interrupted = False

    def run(self, name, command):
        phase = Phase(name)
        self.phases.append(phase)
        if time.monotonic() >= self.deadline:
            phase.ended_because = "there was no time left to begin it"
            return phase
        print(f"\n== {name}", flush=True)
        began, cpu = time.monotonic(), children_seconds()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        reader = threading.Thread(target=self._read, args=(child.stdout, phase))
        reader.start()
        self._wait(child, phase)
        reader.join(timeout=5)
        phase.status = child.returncode
        phase.wall, phase.cpu = time.monotonic() - began, children_seconds() - cpu
        return phase

    def seconds(self):
        """Wall and CPU, of all phases."""
        return time.monotonic() - self.began, children_seconds()

    def minutes_left(self):
        return (self.deadline - time.monotonic()) / 60

    def _wait(self, child, phase):
        try:
            child.wait(timeout=max(0.0, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._end(child, phase, f"ended, because the limit of {self.limit_minutes:g} minutes has passed")
        except KeyboardInterrupt:
            self.interrupted = True
            self.deadline = time.monotonic()
            self._end(child, phase, "interrupted")

    @staticmethod
    def _end(child, phase, reason):
        phase.ended_because = reason
        running = descendants(child.pid)
        phase.running_then = sorted({p.name() for p in running} - {""})
        # Meson then ends its tests and writes down which, in another system, too.
        os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(timeout=15)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        for process in running:
            try:
                if Process(process.pid).words == process.words:  # not another one by now
                    os.kill(process.pid, signal.SIGKILL)
            except OSError:
                pass

    @staticmethod
    def _read(stream, phase):
        for line in stream:
            if PROGRESS.match(line):
                if sys.stdout.isatty():
                    print(f"\r\033[K{line.rstrip()[:100]}", end="", flush=True)
                continue
            phase.lines.append(line)
            if sys.stdout.isatty():
                print("\r\033[K", end="")
            print(line, end="", flush=True)
        if sys.stdout.isatty():
            print("\r\033[K", end="", flush=True)
