#pragma once

#include <memory>

#include "bench/operation.hpp"

namespace rondo::tools {

// One function per operation, and one file.
[[nodiscard]] std::unique_ptr<BenchOperation> make_allgather(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_allreduce(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_alltoall(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_bandwidth(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_barrier(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_broadcast(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_halo(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_latency(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_reduce(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_reduce_scatter(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_token(const BenchSetting& setting);

}  // namespace rondo::tools
