// The safetensors format: eight bytes with the length of the header (little-endian), the header,
// which is a JSON object, and the values of all tensors without gaps. The header gives for each
// tensor its type, its shape, and where its values begin and end behind the header.
//
// Files come from the network, so nothing of a header is believed before it is checked: the length,
// the types, the products of extents, that the tensors lie behind each other without gaps or
// overlaps and fill the file. Values are read from a mapping of the file, one tensor at a time.

#include "weights/safetensors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <rondo/train/dataset.hpp>
#include <rondo/train/output_file.hpp>

#include "data/dataset_type.hpp"
#include "weights/checksum.hpp"

namespace rondo::train {
namespace {

// A file's header is searched by name, one that is written keeps its order.
using SortedJson = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* remedy = "give a whole safetensors file";
constexpr std::size_t length_bytes = 8;
constexpr std::size_t alignment = 8;                   // of the values behind the header
constexpr std::uint64_t longest_header = 100'000'000;  // the format's own limit
constexpr const char* metadata_key = "__metadata__";

static_assert(std::endian::native == std::endian::little, "values are stored little-endian");

// Types that this program does not know have no size, and are refused.
std::size_t bytes_of_type(std::string_view type) {
  if (type == "F64" || type == "I64" || type == "U64" || type == "C64") return 8;
  if (type == "F32" || type == "I32" || type == "U32") return 4;
  if (type == "F16" || type == "BF16" || type == "I16" || type == "U16") return 2;
  if (type == "I8" || type == "U8" || type == "BOOL" || type.starts_with("F8_")) return 1;
  return 0;
}

// The format's own library sorts by the size of an element and then by name; all of ours are fp32.
std::vector<const NamedTensor*> in_file_order(const std::vector<NamedTensor>& tensors) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, {}, &NamedTensor::name);
  return order;
}

std::string header_of(const std::vector<const NamedTensor*>& tensors,
                      const TensorMetadata& metadata) {
  OrderedJson header = OrderedJson::object();
  if (!metadata.empty()) header[metadata_key] = metadata;
  std::size_t offset = 0;
  for (const NamedTensor* tensor : tensors) {
    const std::size_t end = offset + tensor->values.size_bytes();
    header[tensor->name] = {
        {"dtype", "F32"}, {"shape", tensor->shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  // Blanks behind the object: values begin at a multiple of 8 bytes of the file, so that a reader
  // can map them.
  text.append((alignment - text.size() % alignment) % alignment, ' ');
  return text;
}

// IEEE half precision: a sign, 5 bits of exponent with a bias of 15, 10 bits of fraction.
float from_half(std::uint16_t half) {
  const auto sign = static_cast<std::uint32_t>(half & 0x8000U) << 16U;
  const std::uint32_t exponent = half >> 10U & 0x1fU;
  const std::uint32_t fraction = half & 0x3ffU;
  if (exponent == 0) {  // zero, or too small for the usual form: fraction * 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return sign == 0 ? magnitude : -magnitude;
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xffU : exponent + 112;  // Inf and NaN stay so
  return std::bit_cast<float>(sign | wide << 23U | fraction << 13U);
}

float from_bf16(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16U);
}

template <typename Stored, typename Convert>
void convert(std::span<const std::byte> bytes, std::span<float> out, Convert from_stored) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    out[i] = from_stored(stored);
  }
}

}  // namespace

std::string checksum_of_values(const std::vector<NamedTensor>& tensors) {
  Checksum checksum;
  for (const NamedTensor* tensor : in_file_order(tensors)) {
    checksum.add(std::as_bytes(tensor->values));
  }
  return checksum.text();
}

void write_safetensors(const std::filesystem::path& file, const std::vector<NamedTensor>& tensors,
                       const TensorMetadata& metadata) {
  const std::vector<const NamedTensor*> order = in_file_order(tensors);
  const std::string header = header_of(order, metadata);
  const std::uint64_t length = header.size();
  OutputFile output(file, "give a folder that can be written, with enough space");
  output.write(std::as_bytes(std::span(&length, 1)));
  output.write(std::as_bytes(std::span(header)));
  for (const NamedTensor* tensor : order) output.write(std::as_bytes(tensor->values));
  output.finish();
}

// The file's bytes, as long as somebody reads them.
class SafetensorsFile::Mapping {
 public:
  explicit Mapping(const std::filesystem::path& path) {
    // A named pipe would wait for a writer.
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
      fail_on_file(path, fmt::format("cannot be opened ({})", error_text(errno)), remedy);
    }
    struct stat status = {};
    const bool readable = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
    size_ = readable ? static_cast<std::size_t>(status.st_size) : 0;
    if (size_ > 0) data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    // The mapping stays when the descriptor is closed.
    ::close(descriptor);
    if (S_ISDIR(status.st_mode)) {
      fail_on_file(path, "is a folder",
                   "name the file in it, as in " + (path / "model.safetensors").string());
    }
    if (size_ == 0) fail_on_file(path, "is empty, or not a file", remedy);
    if (data_ == MAP_FAILED) {
      fail_on_file(path, fmt::format("cannot be mapped ({})", error_text(errno)), remedy);
    }
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (data_ != MAP_FAILED) ::munmap(data_, size_);
  }

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(data_), size_};
  }

 private:
  void* data_ = MAP_FAILED;
  std::size_t size_ = 0;
};

std::size_t SafetensorsFile::Entry::elements() const noexcept {
  std::size_t product = 1;
  for (const std::int64_t extent : shape) product *= static_cast<std::size_t>(extent);
  return product;
}

bool SafetensorsFile::Entry::has_floats() const noexcept {
  return type == "F64" || type == "F32" || type == "F16" || type == "BF16";
}

SafetensorsFile SafetensorsFile::without_prefix(std::string_view prefix) const {
  SafetensorsFile renamed = *this;
  for (Entry& entry : renamed.entries_) entry.name.erase(0, prefix.size());
  return renamed;
}

SafetensorsFile::SafetensorsFile(std::filesystem::path file)
    : path_(std::move(file)), mapping_(std::make_shared<const Mapping>(path_)) {
  read_header(mapping_->bytes());
}

void SafetensorsFile::fail(std::string_view problem) const { fail_on_file(path_, problem, remedy); }

const SafetensorsFile::Entry* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  return found == entries_.end() ? nullptr : &*found;
}

namespace {

// The entry of one tensor in a header, checked by itself. Extents and offsets are multiplied and
// added only after it is certain that this does not overflow.
struct RawEntry {
  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Nothing when the shape has more elements than any file.
bool bytes_fit(const RawEntry& entry) {
  std::uint64_t bytes = bytes_of_type(entry.type);
  for (const std::int64_t extent : entry.shape) {
    if (extent < 0) return false;
    const auto factor = static_cast<std::uint64_t>(extent);
    if (factor != 0 && bytes > std::numeric_limits<std::uint64_t>::max() / factor) return false;
    bytes *= factor;
  }
  return bytes == entry.end - entry.begin;
}

std::string problem_of(const RawEntry& entry, std::uint64_t values) {
  if (bytes_of_type(entry.type) == 0) return fmt::format("has the unknown type {}", entry.type);
  if (entry.begin > entry.end || entry.end > values) {
    return fmt::format("lies at bytes {} to {} of {}", entry.begin, entry.end, values);
  }
  if (!bytes_fit(entry)) {
    return fmt::format("has {} bytes, which its shape does not give", entry.end - entry.begin);
  }
  return {};
}

// The JSON library would convert a number with a fraction or an exponent, whether it fits or not.
bool are_integers(const SortedJson& array) {
  return std::ranges::all_of(array,
                             [](const SortedJson& entry) { return entry.is_number_integer(); });
}

// Nothing where it is something else.
std::optional<TensorMetadata> texts_in(const SortedJson& object) {
  const auto is_text = [](const SortedJson& entry) { return entry.is_string(); };
  if (!object.is_object() || !std::ranges::all_of(object, is_text)) return std::nullopt;
  return object.get<TensorMetadata>();
}

// Members of the object that `text` is: a name that is there twice counts twice. The JSON library
// keeps the last one, and its callbacks take a time that is quadratic in the number of members.
std::size_t members_of(std::string_view text) {
  std::size_t members = 0;
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      in_string = !in_string;
    } else if (in_string) {
      if (c == '\\') ++i;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == ':' && depth == 1) {
      ++members;
    }
  }
  return members;
}

// Names by its first bytes a file that people often have in place of a safetensors file.
[[noreturn]] void refuse_length(const std::filesystem::path& file, std::uint64_t length,
                                std::string_view bytes) {
  constexpr std::string_view convert =
      "load it in Python and write its state_dict by safetensors.torch.save_file";
  if (bytes.starts_with("PK")) {
    fail_on_file(file, "is a zip file, as torch.save writes it", convert);
  }
  if (bytes.starts_with("\x80\x02")) {
    fail_on_file(file, "is a pickle, as old releases of torch.save write it", convert);
  }
  if (bytes.starts_with("version https://git-lfs")) {
    fail_on_file(file, "is a pointer of Git LFS and not the file itself",
                 "fetch the file by git lfs pull");
  }
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && bytes[first] == '<') {
    fail_on_file(file, "is an HTML or XML page",
                 "download the file itself; the link may need a login");
  }
  fail_on_file(
      file,
      fmt::format("says that its header has {} bytes, and has {} in all", length, bytes.size()),
      remedy);
}

}  // namespace

void SafetensorsFile::read_header(std::span<const std::byte> bytes) {
  std::uint64_t length = 0;
  if (bytes.size() < length_bytes) fail("is shorter than the length of its header");
  std::memcpy(&length, bytes.data(), length_bytes);
  if (length > longest_header || length > bytes.size() - length_bytes) {
    refuse_length(path_, length, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data() + length_bytes);
  const SortedJson header = SortedJson::parse(text, text + length, nullptr, false);
  if (!header.is_object()) fail("has a header that is no JSON object");
  if (members_of({text, length}) != header.size()) fail("describes a tensor twice");
  const std::span<const std::byte> values = bytes.subspan(length_bytes + length);
  std::vector<RawEntry> raw;
  for (const auto& [name, content] : header.items()) {
    if (name == metadata_key) {
      auto texts = texts_in(content);
      if (!texts) fail(fmt::format("has {} that are not all texts", metadata_key));
      metadata_ = *std::move(texts);
      continue;
    }
    try {
      for (const char* key : {"data_offsets", "shape"}) {
        if (are_integers(content.at(key))) continue;
        fail(fmt::format("describes the tensor \"{}\" with a {} that is no integer", name, key));
      }
      const auto offsets = content.at("data_offsets").get<std::vector<std::uint64_t>>();
      if (offsets.size() != 2) {
        fail(fmt::format("describes the tensor \"{}\" with {} data_offsets, and not two", name,
                         offsets.size()));
      }
      raw.push_back({.name = name,
                     .type = content.at("dtype").get<std::string>(),
                     .shape = content.at("shape").get<std::vector<std::int64_t>>(),
                     .begin = offsets[0],
                     .end = offsets[1]});
    } catch (const SortedJson::exception&) {
      fail(fmt::format("describes the tensor \"{}\" without dtype, shape or data_offsets", name));
    }
    // The first mistake is reported, with the tensor's name.
    const std::string problem = problem_of(raw.back(), values.size());
    if (!problem.empty()) fail(fmt::format("the tensor \"{}\" {}", name, problem));
  }
  // Tensors without elements begin where another does.
  std::ranges::sort(raw, [](const RawEntry& a, const RawEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t end = 0;
  for (RawEntry& entry : raw) {
    if (entry.begin != end) {
      fail(fmt::format("the tensor \"{}\" begins at byte {} and not at {}", entry.name, entry.begin,
                       end));
    }
    end = entry.end;
    entries_.push_back({.name = std::move(entry.name),
                        .type = std::move(entry.type),
                        .shape = std::move(entry.shape),
                        .bytes = values.subspan(entry.begin, entry.end - entry.begin)});
  }
  if (end != values.size()) fail(fmt::format("has {} bytes of no tensor", values.size() - end));
}

// A tensor that was just hashed is still in the caches when it is taken.
void SafetensorsFile::read_all(const std::function<void(const Entry&)>& take) const {
  const auto expected = metadata_.find(values_checksum_key);
  Checksum checksum;
  for (const Entry& entry : entries_) {
    if (expected != metadata_.end()) checksum.add(entry.bytes);
    take(entry);
  }
  if (expected == metadata_.end() || checksum.text() == expected->second) return;
  fail_on_file(path_,
               fmt::format("its tensors are damaged: they do not fit the checksum {} of its "
                           "metadata",
                           values_checksum_key),
               "take another copy of it, or export it again; a program that changes values on "
               "purpose leaves that checksum out");
}

void SafetensorsFile::read(const Entry& entry, std::span<float> out) const {
  if (entry.type == "F32") {
    std::memcpy(out.data(), entry.bytes.data(), out.size_bytes());
  } else if (entry.type == "F64") {
    convert<double>(entry.bytes, out, [](double value) { return static_cast<float>(value); });
  } else if (entry.type == "F16") {
    convert<std::uint16_t>(entry.bytes, out, from_half);
  } else if (entry.type == "BF16") {
    convert<std::uint16_t>(entry.bytes, out, from_bf16);
  } else {
    fail(fmt::format("the tensor \"{}\" has the type {}, and not one of floats", entry.name,
                     entry.type));
  }
}

}  // namespace rondo::train
