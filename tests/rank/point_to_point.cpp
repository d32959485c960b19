#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rondo/transport/block.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "modes.hpp"

namespace rondo::test {
namespace {

using transport::Communicator;
using transport::Neighbour;
using transport::Request;
using transport::Strided;

struct Ring {
  explicit Ring(const transport::World& world)
      : left((world.rank() + world.size() - 1) % world.size()),
        right((world.rank() + 1) % world.size()) {}
  int left;
  int right;
};

// Two messages with one tag arrive in order, one with another tag when it is asked for.
void check_messages(transport::World& world, Checks& checks, std::size_t count) {
  const Ring ring(world);
  Communicator& ranks = world.communicator();
  const auto mine = [&](int message) {
    return std::vector<std::int32_t>(count, 10 * world.rank() + message);
  };
  const std::array<std::vector<std::int32_t>, 3> out{mine(0), mine(1), mine(2)};
  std::array<std::vector<std::int32_t>, 3> in{mine(9), mine(9), mine(9)};

  std::vector<Request> requests;
  requests.push_back(ranks.recv(std::span(in[2]), ring.left, 2));
  requests.push_back(ranks.recv(std::span(in[0]), ring.left, 1));
  requests.push_back(ranks.recv(std::span(in[1]), ring.left, 1));
  requests.push_back(ranks.send(std::span<const std::int32_t>(out[0]), ring.right, 1));
  requests.push_back(ranks.send(std::span<const std::int32_t>(out[1]), ring.right, 1));
  requests.push_back(ranks.send(std::span<const std::int32_t>(out[2]), ring.right, 2));
  for (Request& request : requests) request.wait();

  for (int message = 0; message < 3; ++message) {
    checks.elements<std::int32_t>(
        "message " + std::to_string(message) + " of " + std::to_string(count),
        in.at(static_cast<std::size_t>(message)),
        [&](std::size_t) { return 10 * ring.left + message; });
  }
}

// An image of `edge` x `edge` values with a border of one: its outer columns go to the ranks left
// and right, whose columns fill the border.
void check_halo(transport::World& world, Checks& checks, std::size_t edge) {
  const Ring ring(world);
  const std::size_t stride = edge + 2;
  std::vector<float> image(edge * stride, -1.0F);
  for (std::size_t y = 0; y < edge; ++y) {
    for (std::size_t x = 1; x <= edge; ++x) {
      image[y * stride + x] =
          static_cast<float>(value_of(static_cast<std::size_t>(world.rank()), y * edge + x));
    }
  }
  const auto given = [&](std::size_t x) {
    return Strided<const float>(&image[x], edge, 1, stride);
  };
  const auto taken = [&](std::size_t x) { return Strided<float>(&image[x], edge, 1, stride); };
  // Tag 0 travels to the left, tag 1 to the right: with two ranks both come from the same one.
  const std::array<Neighbour, 2> neighbours{
      Neighbour(ring.left, given(1), taken(0), 0, 1),
      Neighbour(ring.right, given(edge), taken(edge + 1), 1, 0)};

  world.communicator().sendrecv(neighbours).wait();

  const auto column = [&](std::size_t x) {
    std::vector<float> values;
    for (std::size_t y = 0; y < edge; ++y) values.push_back(image[y * stride + x]);
    return values;
  };
  checks.elements<float>("halo on the left", column(0), [&](std::size_t y) {
    return value_of(static_cast<std::size_t>(ring.left), y * edge + edge);
  });
  checks.elements<float>("halo on the right", column(edge + 1), [&](std::size_t y) {
    return value_of(static_cast<std::size_t>(ring.right), y * edge + 1);
  });
}

// A token goes around the ring, and every rank adds one; then more signals than anyone reads yet.
void check_tokens(transport::World& world, Checks& checks) {
  const Ring ring(world);
  Communicator& ranks = world.communicator();
  std::vector<std::int64_t> token(1);
  std::uint64_t value = 0;
  constexpr std::uint64_t rounds = 20;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    if (world.rank() == 0) ranks.put_signal(ring.right, value + 1).wait();
    ranks.wait_signal(ring.left, value).wait();
    if (world.rank() != 0) ranks.put_signal(ring.right, value + 1).wait();
  }
  token[0] = static_cast<std::int64_t>(value);
  const auto size = static_cast<std::uint64_t>(world.size());
  const auto before = static_cast<std::uint64_t>(world.rank() == 0 ? world.size() : world.rank());
  checks.elements<std::int64_t>("token", token, [&](std::size_t) {
    return static_cast<std::int64_t>((rounds - 1) * size + before);
  });

  constexpr std::size_t many = 100;
  std::vector<Request> puts;
  for (std::size_t i = 0; i < many; ++i) puts.push_back(ranks.put_signal(ring.right, i, 3));
  std::vector<std::int64_t> got;
  for (std::size_t i = 0; i < many; ++i) {
    ranks.wait_signal(ring.left, value, 3).wait();
    got.push_back(static_cast<std::int64_t>(value));
  }
  for (Request& put : puts) put.wait();
  checks.elements<std::int64_t>("signals in order", got, [](std::size_t i) { return i; });
}

}  // namespace

void check_point_to_point(transport::World& world, Checks& checks) {
  if (world.size() == 1) return;
  for (const std::size_t count : {0UL, 1UL, 1000UL, 100'000UL})
    check_messages(world, checks, count);
  for (const std::size_t edge : {1UL, 17UL, 200UL}) check_halo(world, checks, edge);
  check_tokens(world, checks);
  world.communicator().barrier().wait();
}

}  // namespace rondo::test
