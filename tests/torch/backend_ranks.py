"""The ranks of tests of the backend "rondo": processes of this host, which a test starts.

Each runs one function; a rank that fails tells what in its traceback.
"""

import datetime
import os
import pathlib
import tempfile
import time
import unittest

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

import rondo.torch  # noqa: F401 (registers the backend)


def expect(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(one) for one in what))


def expect_equal(actual, expected, *what):
    same = actual.shape == expected.shape and actual.dtype == expected.dtype
    expect(same and torch.equal(actual, expected), *what, "is", actual, "instead of", expected)


def expect_error(text, call):
    try:
        call()
    except (RuntimeError, ValueError) as error:
        expect(text in str(error), f"'{error}' does not mention '{text}'")
        return
    raise AssertionError(f"no error that mentions '{text}'")


def wait_for_file(name):
    path = pathlib.Path(os.environ["RONDO_TEST_FOLDER"]) / name
    while not path.exists():
        time.sleep(0.01)


def touch_file(own, common, needed):
    folder = pathlib.Path(os.environ["RONDO_TEST_FOLDER"])
    (folder / own).touch()
    if len(list(folder.glob(common + "-*"))) == needed:
        (folder / common).touch()


def run_rank(rank, check, ranks, folder, seconds, backend="rondo"):
    os.environ["RONDO_TEST_FOLDER"] = folder
    torch.set_num_threads(1)
    dist.init_process_group(
        backend,
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=seconds),
    )
    check(rank, ranks)


def start_ranks(arguments, ranks):
    """Forked off, because an import of PyTorch takes longer than most tests."""
    return processes.start_processes(run_rank, arguments, ranks, join=False, start_method="fork")


class RanksTest(unittest.TestCase):
    def over(self, check, ranks, seconds=60, backend="rondo"):
        with tempfile.TemporaryDirectory() as folder:
            arguments = (check, ranks, folder, seconds, backend)
            context = start_ranks(arguments, ranks)
            while not context.join(timeout=120):
                pass
