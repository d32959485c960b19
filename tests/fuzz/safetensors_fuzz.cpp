// Any content of a safetensors file: none of it may crash, hang, or be read beyond its end. For
// libFuzzer; the test runs a fixed number of inputs. The first bytes of an input are taken for the
// header's text, whose length is put in front, so that mutations reach further than that number.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <rondo/train/dataset.hpp>

#include "data/dataset_type.hpp"
#include "weights/safetensors.hpp"

namespace rondo::train {

// These two stand in data/dataset_type.cpp, beside the list of all data sets, which is not wanted.
void fail_on_file(const std::filesystem::path& file, std::string_view problem,
                  std::string_view remedy) {
  throw DataError(file.string() + std::string(problem) + std::string(remedy));
}

std::string error_text(int error) { return std::to_string(error); }

}  // namespace rondo::train

namespace {

using namespace rondo::train;

void require(bool fact) {
  if (!fact) std::abort();
}

// A file in memory, which has a path as long as it is open.
class MemoryFile {
 public:
  MemoryFile(const void* data, std::size_t size) : descriptor_(::memfd_create("fuzz", 0)) {
    require(descriptor_ >= 0);
    require(::write(descriptor_, data, size) == static_cast<ssize_t>(size));
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }

  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

void read_all(const SafetensorsFile& file) {
  std::vector<float> values;
  file.read_all([&](const SafetensorsFile::Entry& entry) {
    require(entry.elements() <= entry.bytes.size());
    require(file.find(entry.name) != nullptr);
    if (!entry.has_floats()) return;
    values.resize(entry.elements());
    file.read(entry, values);
  });
}

void try_file(const void* data, std::size_t size) {
  const MemoryFile memory(data, size);
  try {
    read_all(SafetensorsFile(memory.path()));
  } catch (const DataError&) {  // what it is refused with
  }
}

}  // namespace

// The name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try_file(data, size);
  const std::string input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.find('\0');  // behind the header come the values
  const std::string header = input.substr(0, end);
  const std::string values = end == std::string::npos ? "" : input.substr(end + 1);
  const std::uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  file += header + values;
  try_file(file.data(), file.size());
  return 0;
}
