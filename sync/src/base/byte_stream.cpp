// The states of schemes and optimizers as bytes: a name, a version, and values with checked counts.

#include <rondo/sync/scheme_base.hpp>

#include <algorithm>
#include <stdexcept>

namespace rondo::sync {

ByteWriter::ByteWriter(std::string_view name, std::uint32_t version) {
  put_array(std::span<const char>(name));
  put(version);
}

void ByteWriter::append(std::span<const std::byte> bytes) {
  const std::size_t end = bytes_.size();
  bytes_.resize(end + bytes.size());
  std::ranges::copy(bytes, std::span(bytes_).subspan(end).begin());
}

ByteReader::ByteReader(std::span<const std::byte> bytes, std::string_view name,
                       std::uint32_t version)
    : rest_(bytes), name_(name) {
  const std::span<const std::byte> found = get_bytes();
  const auto expected = std::as_bytes(std::span<const char>(name));
  if (!std::ranges::equal(found, expected)) fail("this is the state of something else");
  const auto found_version = get<std::uint32_t>();
  if (found_version != version) {
    fail("version " + std::to_string(found_version) + " was written, version " +
         std::to_string(version) + " can be read");
  }
}

std::span<const std::byte> ByteReader::get_bytes() {
  const auto count = get<std::uint64_t>();
  if (count > rest_.size()) fail("cut short, or not a state at all");
  const std::span<const std::byte> bytes = rest_.first(static_cast<std::size_t>(count));
  rest_ = rest_.subspan(bytes.size());
  return bytes;
}

void ByteReader::expect_end() const {
  if (!rest_.empty()) fail(std::to_string(rest_.size()) + " bytes too many");
}

void ByteReader::copy(std::span<std::byte> into) {
  if (into.size() > rest_.size()) fail("cut short, or not a state at all");
  std::ranges::copy(rest_.first(into.size()), into.begin());
  rest_ = rest_.subspan(into.size());
}

void ByteReader::expect_count(std::size_t expected) {
  const auto count = get<std::uint64_t>();
  if (count != expected) {
    fail(std::to_string(count) + " elements were saved, there are " + std::to_string(expected));
  }
}

void ByteReader::fail(const std::string& problem) const {
  throw std::invalid_argument("state of " + name_ + ": " + problem);
}

}  // namespace rondo::sync
