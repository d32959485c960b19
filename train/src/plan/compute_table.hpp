#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <rondo/train/compute_costs.hpp>

namespace rondo::train {

// Times by key, as a file of JSON. Times that are not finite, of kernels that were refused, are
// neither written nor read.

// Nothing where there is no such file, or none that can be understood.
[[nodiscard]] std::map<std::string, WorkSeconds> read_times(const std::filesystem::path& file);

// Makes the folder, writes aside and renames. Throws std::runtime_error that names the file.
void write_times(const std::filesystem::path& file,
                 const std::map<std::string, WorkSeconds>& times);

// The layer's numbers, but not its name: what its time depends on.
[[nodiscard]] std::string key_of(const LocalWork& work);

// the kernels, the processor and the threads.
[[nodiscard]] std::string machine_key(int threads);

}  // namespace rondo::train
