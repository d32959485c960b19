// The ring of messages between two ranks of a node.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <thread>

#include <gtest/gtest.h>

#include "links/fifo.hpp"
#include "links/shm/ring.hpp"

namespace rondo::transport::shm_link::shm_ring_test {
namespace {

std::span<const std::byte> bytes_of(const std::uint64_t& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::uint64_t value_of(const RingReader::Front& front) {
  std::uint64_t value = 0;
  EXPECT_EQ(front.payload.size(), sizeof value);
  std::memcpy(&value, front.payload.data(), sizeof value);
  return value;
}

TEST(ShmRingTest, IsEmptyWhenItIsNew) {
  const auto ring = std::make_unique<Ring>();

  EXPECT_FALSE(RingReader(*ring).ready());
  EXPECT_FALSE(RingWriter(*ring).full());
}

TEST(ShmRingTest, CarriesKindTagAndPayload) {
  const auto ring = std::make_unique<Ring>();
  RingWriter writer(*ring);
  const RingReader reader(*ring);
  std::array<std::byte, ring_payload_bytes> payload{};
  payload.back() = std::byte{7};
  constexpr std::uint64_t tag = 0xFEDC'BA98'7654;

  writer.push(SlotKind::arena, tag, payload);

  ASSERT_TRUE(reader.ready());
  const auto front = reader.front();
  EXPECT_EQ(front.kind, SlotKind::arena);
  EXPECT_EQ(front.tag, tag);
  EXPECT_EQ(front.payload.size(), ring_payload_bytes);
  EXPECT_EQ(front.payload.back(), std::byte{7});
}

TEST(ShmRingTest, IsFullUntilAMessageIsPopped) {
  const auto ring = std::make_unique<Ring>();
  RingWriter writer(*ring);
  RingReader reader(*ring);

  for (std::size_t i = 0; i < ring_slots; ++i) {
    EXPECT_FALSE(writer.full()) << i;
    writer.push(SlotKind::inlined, i, {});
  }

  EXPECT_TRUE(writer.full());
  reader.pop();
  EXPECT_FALSE(writer.full());
}

TEST(ShmRingTest, IsHalfFullWhenHalfOfItsSlotsAreFilled) {
  const auto ring = std::make_unique<Ring>();
  RingWriter writer(*ring);
  RingReader reader(*ring);

  for (std::size_t i = 0; i < ring_slots / 2; ++i) {
    EXPECT_FALSE(reader.half_full()) << i;
    writer.push(SlotKind::inlined, i, {});
  }

  EXPECT_TRUE(reader.half_full());
  reader.pop();
  EXPECT_FALSE(reader.half_full());
}

TEST(ShmRingTest, TellsNewMessagesFromThoseOfEarlierLaps) {
  const auto ring = std::make_unique<Ring>();
  RingWriter writer(*ring);
  RingReader reader(*ring);

  for (std::uint64_t i = 0; i < 5 * ring_slots; ++i) {
    EXPECT_FALSE(reader.ready()) << i;
    writer.push(SlotKind::inlined, i, bytes_of(i));
    ASSERT_TRUE(reader.ready()) << i;
    EXPECT_EQ(value_of(reader.front()), i);
    reader.pop();
  }
}

TEST(ShmRingTest, KeepsOrderBetweenThreads) {
  constexpr std::uint64_t messages = 5'000;
  const auto ring = std::make_unique<Ring>();
  std::thread sender([&] {
    RingWriter writer(*ring);
    for (std::uint64_t i = 0; i < messages; ++i) {
      while (writer.full()) std::this_thread::yield();
      writer.push(SlotKind::inlined, i, bytes_of(i));
    }
  });
  RingReader reader(*ring);
  std::uint64_t wrong = 0;

  for (std::uint64_t i = 0; i < messages; ++i) {
    while (!reader.ready()) std::this_thread::yield();
    const auto front = reader.front();
    wrong += front.tag == i && value_of(front) == i ? 0 : 1;
    reader.pop();
  }
  sender.join();

  EXPECT_EQ(wrong, 0U);
}

struct Item {
  int value = 0;
  Item* next = nullptr;
};

TEST(ShmFifoTest, TakesTheOldestThatFitsAndKeepsTheOthersInOrder) {
  std::array<Item, 4> items{{{.value = 1}, {.value = 2}, {.value = 3}, {.value = 2}}};
  Fifo<Item> fifo;
  for (Item& item : items) fifo.push(item);

  const Item* two = fifo.extract([](const Item& item) { return item.value == 2; });
  const Item* other = fifo.extract([](const Item& item) { return item.value == 2; });
  const Item* none = fifo.extract([](const Item& item) { return item.value == 2; });

  EXPECT_EQ(two, &items[1]);
  EXPECT_EQ(other, &items[3]);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(fifo.size(), 2U);
  items[1].value = 4;
  fifo.push(items[1]);
  EXPECT_EQ(fifo.pop().value, 1);
  EXPECT_EQ(fifo.pop().value, 3);
  EXPECT_EQ(fifo.pop().value, 4);
  EXPECT_TRUE(fifo.empty());
}

TEST(ShmFifoTest, OffersEachItemOnceAndKeepsWhatIsNotFinished) {
  std::array<Item, 3> items{{{.value = 1}, {.value = 2}, {.value = 3}}};
  Fifo<Item> fifo;
  for (Item& item : items) fifo.push(item);
  int offered = 0;

  fifo.rotate(
      [&](const Item& item) {
        offered += 1;
        return item.value == 1;
      },
      [&] { return offered == 2; });

  EXPECT_EQ(offered, 2);
  EXPECT_EQ(fifo.pop().value, 3);
  EXPECT_EQ(fifo.pop().value, 2);
  EXPECT_TRUE(fifo.empty());
}

}  // namespace
}  // namespace rondo::transport::shm_link::shm_ring_test
