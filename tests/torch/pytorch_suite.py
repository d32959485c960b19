"""PyTorch's own tests of torch.distributed, with the backend "rondo", or with gloo beside it.

usage: meson devenv -C BUILD python3 .../tests/torch/pytorch_suite.py [gloo] [TestBackend.test_NAME...] [-v]

They are those of torch.testing._internal.distributed.distributed_test, which PyTorch installs. The
decorators that skip tests ask for the backend's name: they are told "gloo", so that what gloo is
tested with is tested here; the process groups are of "rondo". WORLD_SIZE (default 3) is the number
of ranks. They are forked off, because an import of PyTorch takes longer than most tests.
docs/results.md says what fails, and why.
"""

import os
import sys
import tempfile
import types
import unittest

# PyTorch reads the arguments at its import.
with_gloo = sys.argv[1:2] == ["gloo"]
del sys.argv[1 : 1 + with_gloo]

# Debian 12 has no package of expecttest, of which these tests use the base class alone.
expecttest = types.SimpleNamespace(TestCase=unittest.TestCase, ACCEPT=False)
sys.modules.setdefault("expecttest", expecttest)

os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp(prefix="rondo-torch-"))
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29571")
folder = os.environ["TEMP_DIR"]
os.environ.setdefault("INIT_METHOD", f"file://{folder}/shared_init_file")
for name in ("test_dir", "init_dir", "barrier"):
    os.makedirs(os.path.join(folder, name), exist_ok=True)

os.environ["BACKEND"] = "gloo"
import torch
import torch.testing._internal.common_distributed as common
import torch.testing._internal.distributed.distributed_test as suite
from torch.testing._internal.common_utils import run_tests

if not with_gloo:
    import rondo.torch

    assert rondo.torch
    suite.BACKEND = os.environ["BACKEND"] = "rondo"
    for feature in ("ddp", "subgroup", "plugin"):
        common.DistTestCases.backend_feature[feature].add("rondo")


class TestBackend(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


if __name__ == "__main__":
    run_tests()
