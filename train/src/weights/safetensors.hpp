#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::train {

// A tensor of a safetensors file: fp32 values in row-major order, lent.
struct NamedTensor {
  std::string name = {};
  std::vector<std::int64_t> shape = {};
  std::span<const float> values = {};
};

// Free text that a safetensors file carries besides its tensors.
using TensorMetadata = std::map<std::string, std::string>;

// The metadata that, where they are there, say the checksum of the values of all tensors, in the
// order of the file.
inline constexpr const char* values_checksum_key = "rondo.xxh3";

// As those metadata have it, of `tensors`.
[[nodiscard]] std::string checksum_of_values(const std::vector<NamedTensor>& tensors);

// Writes `tensors` as a safetensors file: a length, a header of JSON, the values. The order and the
// spelling are those of the format's own library, so that a file that it has written is written
// again with the same bytes. Written aside, synced and renamed: at no moment is there half a file.
// Throws DataError when the file cannot be written.
void write_safetensors(const std::filesystem::path& file, const std::vector<NamedTensor>& tensors,
                       const TensorMetadata& metadata);

// A safetensors file that somebody else may have written; nothing of it is trusted.
class SafetensorsFile {
 public:
  struct Entry {
    std::string name = {};
    std::string type = {};  // F64, F32, F16, BF16, I64, ...
    std::vector<std::int64_t> shape = {};
    std::span<const std::byte> bytes = {};

    [[nodiscard]] std::size_t elements() const noexcept;
    [[nodiscard]] bool has_floats() const noexcept;  // which read() takes
  };

  // Maps the file. Throws DataError when it cannot be read or breaks a rule of the format.
  explicit SafetensorsFile(std::filesystem::path file);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] const TensorMetadata& metadata() const noexcept { return metadata_; }
  // In the order of their values in the file.
  [[nodiscard]] const std::vector<Entry>& entries() const noexcept { return entries_; }
  // Null when there is none.
  [[nodiscard]] const Entry* find(std::string_view name) const noexcept;

  // The same file whose names lack their first bytes; all of them begin with `prefix`.
  [[nodiscard]] SafetensorsFile without_prefix(std::string_view prefix) const;

  // Gives every tensor to `take`, in the order of the file, and goes through the bytes once. Throws
  // DataError behind the last one where they do not fit the checksum of the metadata.
  void read_all(const std::function<void(const Entry&)>& take) const;

  // The values of a tensor of F64, F32, F16 or BF16 as fp32; `out` has as many elements. Throws
  // DataError for other types.
  void read(const Entry& entry, std::span<float> out) const;

  [[noreturn]] void fail(std::string_view problem) const;

 private:
  class Mapping;

  void read_header(std::span<const std::byte> bytes);

  std::filesystem::path path_;
  std::shared_ptr<const Mapping> mapping_;
  TensorMetadata metadata_;
  std::vector<Entry> entries_;
};

}  // namespace rondo::train
