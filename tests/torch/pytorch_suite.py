"""PyTorch's own tests of torch.distributed, with the backend "rondo".

usage: meson devenv -C BUILD python3 .../tests/torch/pytorch_suite.py [-v] [TestRondo.test_NAME...]

They are those of torch.testing._internal.distributed.distributed_test, which PyTorch installs, and
take half an hour. The decorators that skip tests ask for the backend's name: they are told "gloo",
so that what gloo is tested with is tested here; the process groups are of "rondo". WORLD_SIZE
(default 3) is the number of ranks. docs/results.md lists what fails, and why.
"""

import os
import sys
import tempfile
import types
import unittest

# Debian has no package of expecttest, of which these tests use the base class alone.
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
import torch.testing._internal.common_distributed as common
import torch.testing._internal.distributed.distributed_test as suite
from torch.testing._internal.common_utils import run_tests

import rondo.torch

assert rondo.torch
suite.BACKEND = os.environ["BACKEND"] = "rondo"
for feature in ("ddp", "subgroup", "plugin"):
    common.DistTestCases.backend_feature[feature].add("rondo")


class TestRondo(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()


if __name__ == "__main__":
    run_tests()
