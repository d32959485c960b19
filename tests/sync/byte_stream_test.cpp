// What a ByteWriter wrote, a ByteReader reads; everything else is refused with a reason.

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/scheme_base.hpp>

namespace rondo::sync::byte_stream_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::byte> written(const std::vector<float>& values) {
  ByteWriter writer("thing", 2);
  writer.put(std::uint64_t{42});
  writer.put_array(std::span<const float>(values));
  return writer.take();
}

TEST(ByteStreamTest, GivesBackWhatWasWritten) {
  const std::vector<std::byte> bytes = written({1.5F, -2.5F});
  ByteReader reader(bytes, "thing", 2);
  std::vector<float> values(2);

  const auto number = reader.get<std::uint64_t>();
  reader.get_array(std::span(values));

  EXPECT_EQ(number, 42U);
  EXPECT_THAT(values, testing::ElementsAre(1.5F, -2.5F));
  EXPECT_NO_THROW(reader.expect_end());
}

TEST(ByteStreamTest, HoldsOtherStreamsAsBytes) {
  const std::vector<std::byte> inner = written({3.0F});
  ByteWriter writer("outer", 1);
  writer.put_array(std::span<const std::byte>(inner));
  const std::vector<std::byte> bytes = writer.take();
  ByteReader reader(bytes, "outer", 1);

  const std::span<const std::byte> found = reader.get_bytes();

  EXPECT_THAT(std::vector(found.begin(), found.end()), testing::ContainerEq(inner));
}

TEST(ByteStreamTest, RefusesTheStateOfSomethingElse) {
  const std::vector<std::byte> bytes = written({});

  EXPECT_THAT([&] { ByteReader(bytes, "other", 2); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("state of other: ")));
}

TEST(ByteStreamTest, RefusesAnotherVersion) {
  const std::vector<std::byte> bytes = written({});

  EXPECT_THAT([&] { ByteReader(bytes, "thing", 3); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("version 2 was written")));
}

TEST(ByteStreamTest, RefusesAnotherNumberOfElements) {
  const std::vector<std::byte> bytes = written({1.0F, 2.0F});
  ByteReader reader(bytes, "thing", 2);
  static_cast<void>(reader.get<std::uint64_t>());
  std::vector<float> values(3);

  EXPECT_THAT(
      [&] { reader.get_array(std::span(values)); },
      ThrowsMessage<std::invalid_argument>(HasSubstr("2 elements were saved, there are 3")));
}

void read_two_floats(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "thing", 2);
  static_cast<void>(reader.get<std::uint64_t>());
  std::vector<float> values(2);
  reader.get_array(std::span(values));
}

TEST(ByteStreamTest, RefusesWhatWasCutShortAnywhere) {
  const std::vector<std::byte> bytes = written({1.0F, 2.0F});

  EXPECT_NO_THROW(read_two_floats(bytes));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(read_two_floats(std::span(bytes).first(length)), std::invalid_argument)
        << "cut to " << length;
  }
}

TEST(ByteStreamTest, RefusesBytesTooMany) {
  std::vector<std::byte> bytes = written({});
  bytes.push_back(std::byte{0});
  ByteReader reader(bytes, "thing", 2);
  static_cast<void>(reader.get<std::uint64_t>());
  reader.get_array(std::span<float>());

  EXPECT_THAT([&] { reader.expect_end(); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("1 bytes too many")));
}

}  // namespace
}  // namespace rondo::sync::byte_stream_test
