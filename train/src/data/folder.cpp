// A folder of images: train/CLASS/ and val/CLASS/ with JPEG, PNG and PPM files. Names are listed
// once, sorted, so that all ranks number images and classes alike; a file is opened when its image
// is wanted. A million names are some tens of megabytes: they lie in one text, without the folders
// that all images of a class share.

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <rondo/train/dataset.hpp>

#include "data/dataset_type.hpp"

namespace rondo::train {
namespace {

constexpr std::int64_t folder_colours = 3;
constexpr std::array<float, 3> mean_of_imagenet = {0.485F, 0.456F, 0.406F};
constexpr std::array<float, 3> stddev_of_imagenet = {0.229F, 0.224F, 0.225F};
constexpr std::array<std::string_view, 5> endings = {".jpg", ".jpeg", ".png", ".ppm", ".pgm"};
constexpr const char* folder_remedy =
    "set data.path to a folder with train/CLASS/ and val/CLASS/ that hold JPEG, PNG or PPM files";

// By the name alone: whether a file is an image is found out when it is decoded.
bool is_image(const std::filesystem::directory_entry& entry) {
  std::string ending = entry.path().extension().string();
  for (char& letter : ending) {
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  std::error_code ignored;
  return std::ranges::find(endings, ending) != endings.end() && !entry.is_directory(ignored);
}

// The sorted names in a folder that `wanted` accepts. Hidden ones do not count.
template <class Wanted>
std::vector<std::string> names_in(const std::filesystem::path& folder, const Wanted& wanted) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!name.starts_with('.') && wanted(*entry)) names.push_back(std::move(name));
  }
  if (error) {
    fail_on_file(folder, fmt::format("cannot be listed ({})", error.message()), folder_remedy);
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> classes_in(const std::filesystem::path& folder) {
  return names_in(folder, [](const std::filesystem::directory_entry& entry) {
    std::error_code ignored;
    return entry.is_directory(ignored);
  });
}

// The names of one of the two sets. An image's number is its place in the list.
class FolderSource : public ImageSource {
 public:
  explicit FolderSource(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Adds the images of a class; returns how many there are.
  std::int64_t add_class(const std::string& name) {
    const std::vector<std::string> files =
        names_in(folder_ / name, [this](const std::filesystem::directory_entry& entry) {
          if (is_image(entry)) return true;
          ++left_out_;
          return false;
        });
    if (files.empty()) {
      fail_on_file(folder_ / name, "holds no image",
                   "put an image there, or remove the class from train/ and val/");
    }
    // A name ends where the next one begins.
    for (const std::string& file : files) {
      begins_.push_back(names_.size());
      classes_of_.push_back(static_cast<std::int32_t>(classes_.size()));
      names_ += file;
    }
    classes_.push_back(name);
    return static_cast<std::int64_t>(files.size());
  }

  // Files and folders in the folders of classes that are no images.
  [[nodiscard]] std::int64_t left_out() const noexcept { return left_out_; }

  void read(std::int64_t image, const Framing& frame,
            tensor::View<std::uint8_t> out) const override {
    const std::filesystem::path file = path_of(static_cast<std::size_t>(image));
    decode_image(read_file(file), file.string(), frame, out);
  }

  [[nodiscard]] std::size_t bytes_per_thread() const override { return kept_for_decoding; }

  // A digest of the names, and so of the labels: the contents would take minutes to read.
  [[nodiscard]] std::string digest() const override {
    const std::string classes = fmt::format("{}", fmt::join(classes_, "/"));
    // Sizes and dates of files are left out: copies of a data set on several nodes differ in them.
    const std::size_t counts = classes_of_.size() * sizeof(classes_of_.front());
    return fmt::format("{:016x}{:016x}{:016x}", XXH3_64bits(names_.data(), names_.size()),
                       XXH3_64bits(classes.data(), classes.size()),
                       XXH3_64bits(classes_of_.data(), counts));
  }

 private:
  [[nodiscard]] std::filesystem::path path_of(std::size_t image) const {
    const std::size_t end = image + 1 < begins_.size() ? begins_[image + 1] : names_.size();
    const auto file = std::string_view(names_).substr(begins_[image], end - begins_[image]);
    return folder_ / classes_[static_cast<std::size_t>(classes_of_[image])] / file;
  }

  std::filesystem::path folder_;
  std::vector<std::string> classes_;
  std::string names_;                // of all files, one behind the other
  std::vector<std::size_t> begins_;  // of each file's name
  std::vector<std::int32_t> classes_of_;
  std::int64_t left_out_ = 0;
};

// The images of `classes` in `folder`. Adds to `left_out` what else is there.
Images list_images(const std::filesystem::path& folder, const std::vector<std::string>& classes,
                   const tensor::Shape& shape, std::int64_t& left_out) {
  const auto source = std::make_shared<FolderSource>(folder);
  Images images{.shape = shape.with_n(0)};
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const std::int64_t count = source->add_class(classes[i]);
    images.shape.n += count;
    images.labels.insert(images.labels.end(), static_cast<std::size_t>(count),
                         static_cast<std::int32_t>(i));
  }
  if (images.shape.n > std::numeric_limits<std::int32_t>::max()) {
    fail_on_file(folder, "holds too many images", folder_remedy);
  }
  left_out += source->left_out();
  images.source = source;
  return images;
}

std::filesystem::path test_folder_of(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const char* const name : {"val", "test"}) {
    if (std::filesystem::is_directory(folder / name, ignored)) return folder / name;
  }
  fail_on_file(folder, "has no subfolder val, nor test", folder_remedy);
}

// "a, b, c and 4 more"; empty where no class of `some` is missing in `others`. Both are sorted.
std::string names_missing(const std::vector<std::string>& some,
                          const std::vector<std::string>& others) {
  std::vector<std::string> missing;
  std::ranges::set_difference(some, others, std::back_inserter(missing));
  constexpr std::size_t most = 3;
  const std::size_t more = missing.size() - std::min(missing.size(), most);
  missing.resize(missing.size() - more);
  const std::string names = fmt::format("{}", fmt::join(missing, ", "));
  return more == 0 ? names : fmt::format("{} and {} more", names, more);
}

// Says how the classes in `test` differ from those for training; empty where they do not.
std::string difference_of(const std::vector<std::string>& test,
                          const std::vector<std::string>& training) {
  const std::string lacks = names_missing(training, test);
  const std::string besides = names_missing(test, training);
  if (besides.empty()) return lacks.empty() ? "" : "it lacks " + lacks;
  return lacks.empty() ? "it has " + besides + " besides"
                       : fmt::format("it lacks {}, and has {} besides", lacks, besides);
}

}  // namespace

Dataset list_folder(const std::filesystem::path& folder, std::int64_t height, std::int64_t width) {
  const std::filesystem::path training = folder / "train";
  const std::vector<std::string> classes = classes_in(training);
  if (classes.empty()) fail_on_file(training, "has no subfolder of a class", folder_remedy);
  const std::filesystem::path test = test_folder_of(folder);
  // The label of a class is its place in the sorted list, so the lists must be the same.
  const std::string difference = difference_of(classes_in(test), classes);
  if (!difference.empty()) {
    fail_on_file(test, fmt::format("has other classes than {}: {}", training.string(), difference),
                 folder_remedy);
  }
  // ImageNet's numbers are usual for photographs, and measuring would mean to decode everything.
  const tensor::Shape shape{0, height, width, folder_colours};
  std::int64_t left_out = 0;
  Dataset dataset{.name = "folder",
                  .classes = static_cast<std::int64_t>(classes.size()),
                  .training = list_images(training, classes, shape, left_out),
                  .test = list_images(test, classes, shape, left_out),
                  .mean = {mean_of_imagenet.begin(), mean_of_imagenet.end()},
                  .stddev = {stddev_of_imagenet.begin(), stddev_of_imagenet.end()},
                  .class_names = classes};
  if (left_out > 0) {
    dataset.note = fmt::format(
        "{} in the folders of classes left out: {} by their names no JPEG, PNG, PPM or PGM files",
        left_out == 1 ? "1 entry is" : fmt::format("{} entries are", left_out),
        left_out == 1 ? "it is" : "they are");
  }
  return dataset;
}

namespace {

// The planner runs without data, too: then the model's usual number of classes counts.
std::int64_t count_classes(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path / "train", ignored)) return 0;
  return static_cast<std::int64_t>(classes_in(path / "train").size());
}

DatasetShape folder_shape(const Experiment::Data& data) {
  const std::int64_t side = data.image_size;
  return {.image = side > 0 ? tensor::Shape{1, side, side, folder_colours} : tensor::Shape{},
          .classes = count_classes(data.path)};
}

Dataset load_folder(const Experiment::Data& data, const DatasetShape& shape) {
  if (data.path.empty()) throw ConfigError(std::string("data.path: missing; ") + folder_remedy);
  // The channels are those of the model's usual input, where no size is given.
  if (shape.image.c != folder_colours) {
    throw ConfigError(fmt::format(
        "data.image_size: the model's usual images have {} channel{}, and those of a folder have "
        "3; set the size, and the model takes images of 3 channels",
        shape.image.c, shape.image.c == 1 ? "" : "s"));
  }
  return list_folder(data.path, shape.image.h, shape.image.w);
}

}  // namespace

const DatasetType image_folder = {.name = "folder", .shape = folder_shape, .load = load_folder};

}  // namespace rondo::train
