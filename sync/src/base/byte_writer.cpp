#include "base/byte_writer.hpp"

#include <algorithm>

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

}  // namespace rondo::sync
