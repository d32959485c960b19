#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::train {

// The parts of a rank's state. Each part is a file; ranks with equal parts share one. `evaluated`
// is an EvaluatedPart, see resume.hpp.
enum class Part : std::uint8_t { parameters, statistics, scheme, progress, evaluated };
inline constexpr std::size_t part_count = 5;
inline constexpr std::array<std::string_view, part_count> part_names = {
    "parameters", "statistics", "scheme", "progress", "evaluated"};

// A file of a checkpoint, beside its manifest.
struct CheckpointFile {
  std::string name = {};
  std::uint64_t bytes = 0;
  std::string checksum = {};

  [[nodiscard]] bool operator==(const CheckpointFile&) const = default;
};

// Images without their pixels.
struct DescribedImages {
  std::string name = {};                 // of the Dataset
  std::array<std::int64_t, 3> hwc = {};  // height, width and channels
  std::int64_t classes = 0;

  [[nodiscard]] bool operator==(const DescribedImages&) const = default;
};

// The table of contents of a checkpoint: what was trained, how far, and which files hold what.
struct Manifest {
  std::string program = {};  // the version that wrote it
  std::string config = {};   // as a TOML file
  std::int64_t step = 0;     // of the run, that have been trained
  std::int64_t epoch = 0;    // 1-based, the one under way or just ended
  int ranks = 1;
  int threads = 1;                    // of rank 0
  int replicas = 1;                   // of the grid; each has ranks / replicas ranks
  int nodes = 1;                      // which averaging groups follow by default
  std::size_t lazy_convolutions = 0;  // of lazy updates
  std::int64_t training_samples = 0;  // of the data set
  std::string training_data = {};     // these two are DataDigests
  std::string test_data = {};
  std::vector<float> mean = {};  // these three are those of the Dataset
  std::vector<float> stddev = {};
  std::vector<std::string> class_names = {};
  // Other facts that a model needs about its images; nothing in checkpoints of older programs.
  std::optional<DescribedImages> images = {};
  std::string layers = {};              // checksum_of_layers()
  std::optional<double> accuracy = {};  // percent, on the test set; at the end of an epoch
  std::uint64_t metrics_bytes = 0;      // of metrics.jsonl by then
  std::string metrics_checksum = {};    // of these; nothing in checkpoints of older programs
  std::uint64_t token_trace_bytes = 0;  // of token_trace.jsonl
  std::vector<CheckpointFile> files = {};
  // By rank: which of `files` holds which part.
  std::vector<std::array<std::size_t, part_count>> parts = {};

  [[nodiscard]] const CheckpointFile& file_of(int rank, Part part) const {
    return files[parts[static_cast<std::size_t>(rank)][static_cast<std::size_t>(part)]];
  }

  [[nodiscard]] bool operator==(const Manifest&) const = default;
};

// JSON that ends with a checksum of itself.
[[nodiscard]] std::string to_json(const Manifest& manifest);

// Reads what to_json() wrote. Nothing of `text` is trusted: throws std::invalid_argument that says
// what is wrong unless it is that text, byte by byte, and makes sense.
[[nodiscard]] Manifest parse_manifest(std::string_view text);

}  // namespace rondo::train
