"""Every rank contributes an array; all get the mean: the Python version of mean_of_ranks.cpp.

rondo run -n 2 -- python3 mean_of_ranks.py
"""

import rondo

with rondo.World() as world:
    data = world.empty(1_000_000, "float32")
    data[:] = world.rank

    request = world.allreduce(data, wait=False)
    # ... compute something else meanwhile, and call world.progress() now and then ...
    request.wait()

    data /= world.size
    print(f"rank {world.rank} of {world.size}: mean {data[0]:g}")
