// The files of idx and CIFAR data sets, plain or gzipped, as anybody may give them: each is refused
// with a DataError, or gives as many labels as images, all of them possible. For libFuzzer; the
// test runs a fixed number of inputs.
//
// Compiled once for each kind, RONDO_FUZZ_KIND. A data set is a folder with several files. The
// first byte of an input chooses the one that is made of the rest; all others are whole.

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/train/dataset.hpp>

namespace {

using namespace rondo::train;
namespace fs = std::filesystem;

void require(bool fact) {
  if (!fact) std::abort();
}

struct File {
  std::string name;
  std::string whole;  // content that can be read
};

struct Format {
  Dataset (*read)(const fs::path& folder);
  std::vector<File> files;
};

// Two images of 2 x 2 pixels.
std::string idx_images() {
  return std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x02", 16) + "12345678";
}
std::string idx_labels() { return {"\0\0\x08\x01\0\0\0\x02\x01\x02", 10}; }

[[maybe_unused]] std::vector<Format> idx() {
  return {{read_idx,
           {{"train-images-idx3-ubyte", idx_images()},
            {"train-labels-idx1-ubyte", idx_labels()},
            {"t10k-images-idx3-ubyte", idx_images()},
            {"t10k-labels-idx1-ubyte", idx_labels()}}}};
}

template <int classes>
Dataset read_cifar(const fs::path& folder) {
  return load_dataset({.name = "cifar" + std::to_string(classes), .path = folder}, {}, 0);
}

// One image, with one or two labels in front.
std::string cifar_record(std::size_t labels) { return std::string(labels + 3072, '\x07'); }

[[maybe_unused]] std::vector<Format> cifar() {
  Format ten{read_cifar<10>, {{"test_batch.bin", cifar_record(1)}}};
  for (const char* number : {"1", "2", "3", "4", "5"}) {
    ten.files.push_back({std::string("data_batch_") + number + ".bin", cifar_record(1)});
  }
  return {ten, {read_cifar<100>, {{"train.bin", cifar_record(2)}, {"test.bin", cifar_record(2)}}}};
}

// A folder of its own, removed at the end of the program.
class Folder {
 public:
  explicit Folder(const Format& format) : format_(format) {
    // mkdtemp() puts letters of its own in place of the last six.
    std::string name = (fs::temp_directory_path() / "rondo-fuzz-XXXXXX").string();
    require(::mkdtemp(name.data()) != nullptr);
    path_ = name;
    for (const File& file : format_.files) write(file.name, file.whole);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  [[nodiscard]] std::size_t files() const { return format_.files.size(); }

  void read_with(std::size_t file, std::string_view content) const {
    write(format_.files[file].name, content);
    try {
      check(format_.read(path_));
    } catch (const DataError&) {  // what it is refused with
    }
    write(format_.files[file].name, format_.files[file].whole);
  }

 private:
  void write(const std::string& name, std::string_view content) const {
    std::ofstream stream(path_ / name, std::ios::binary);
    stream.write(content.data(), static_cast<std::streamsize>(content.size()));
    require(stream.good());
  }

  static void check(const Dataset& dataset) {
    for (const Images* images : {&dataset.training, &dataset.test}) {
      require(images->labels.size() == static_cast<std::size_t>(images->shape.n));
      require(images->pixels.size() == static_cast<std::size_t>(images->shape.size()));
      for (const std::int32_t label : images->labels) {
        require(0 <= label && label < dataset.classes);
      }
    }
  }

  const Format& format_;
  fs::path path_;
};

}  // namespace

// The name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<Format> formats = RONDO_FUZZ_KIND();
  static const std::array<Folder, 2> folders = {Folder(formats.front()), Folder(formats.back())};
  if (size == 0) return 0;
  const Folder& folder = folders[data[0] >> 7U];
  const std::string_view content(reinterpret_cast<const char*>(data) + 1, size - 1);
  folder.read_with((data[0] & 0x7fU) % folder.files(), content);
  return 0;
}
