// How values move between the ranks of a grid. Boxes are packed into buffers, sent, and copied or
// added where they arrive; channels of the same pixels are gathered and scattered as rows of a
// matrix. The transport's plans are made once, so that a step allocates nothing.
//
// The communicators of a grid are kept here, too. Splitting a communicator is a collective
// operation, so each set of ranks is made once; all ranks ask for the same sets in the same order.

#include "grid/exchange.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace rondo::train {
namespace {

std::vector<int> colors_of(ProcessGrid grid, int (ProcessGrid::*of)(int) const noexcept) {
  std::vector<int> colors;
  for (int rank = 0; rank < grid.ranks(); ++rank) colors.push_back((grid.*of)(rank));
  return colors;
}

}  // namespace

GridCommunicators::GridCommunicators(transport::Communicator& all, ProcessGrid grid)
    : all_(all), grid_(grid) {
  if (grid.pr < 1 || grid.pc < 1 || grid.ranks() != all.size()) {
    throw std::invalid_argument("a grid of " + std::to_string(grid.pr) + " x " +
                                std::to_string(grid.pc) + " needs as many ranks, not " +
                                std::to_string(all.size()));
  }
  static_cast<void>(replica());
}

transport::Communicator& GridCommunicators::replica() {
  return split(colors_of(grid_, &ProcessGrid::replica_of),
               colors_of(grid_, &ProcessGrid::position_of));
}

transport::Communicator& GridCommunicators::across() {
  return split(colors_of(grid_, &ProcessGrid::position_of),
               colors_of(grid_, &ProcessGrid::replica_of));
}

// Equal colors and keys of all ranks mean the same communicators, on every rank.
transport::Communicator& GridCommunicators::split(const std::vector<int>& colors,
                                                  const std::vector<int>& keys) {
  std::vector<int> members = colors;
  members.insert(members.end(), keys.begin(), keys.end());
  const auto found = made_.find(members);
  if (found != made_.end()) return found->second;
  const auto mine = static_cast<std::size_t>(all_.rank());
  return made_.emplace(std::move(members), all_.split(colors[mine], keys[mine])).first->second;
}

namespace {

/// Where element (n, h, w, c) of the whole array lies in memory that holds `held`.
std::int64_t offset_of(const Box& held, std::int64_t n, std::int64_t h, std::int64_t w,
                       std::int64_t c) {
  const tensor::Shape shape = held.shape();
  return (((n - held.n.first) * shape.h + h - held.h.first) * shape.w + w - held.w.first) *
             shape.c +
         c - held.c.first;
}

/// Calls move(from, into, count) for runs as long as both memories are dense: a pixel's channels,
/// or a row's pixels, or an image's rows, or all images.
template <typename Move>
void for_each_run(const Box& box, const BoxView<const float>& from, const BoxView<float>& into,
                  Move move) {
  if (box.empty()) return;
  const bool pixels = box.c == from.box.c && box.c == into.box.c;
  const bool rows = pixels && box.w == from.box.w && box.w == into.box.w;
  const bool images = rows && box.h == from.box.h && box.h == into.box.h;
  const tensor::Shape shape = box.shape();
  std::int64_t run = shape.c;
  if (pixels) run *= shape.w;
  if (rows) run *= shape.h;
  if (images) run *= shape.n;
  const std::int64_t n_last = images ? box.n.first + 1 : box.n.last;
  const std::int64_t h_last = rows ? box.h.first + 1 : box.h.last;
  const std::int64_t w_last = pixels ? box.w.first + 1 : box.w.last;
  for (std::int64_t n = box.n.first; n < n_last; ++n) {
    for (std::int64_t h = box.h.first; h < h_last; ++h) {
      for (std::int64_t w = box.w.first; w < w_last; ++w) {
        move(from.data + offset_of(from.box, n, h, w, box.c.first),
             into.data + offset_of(into.box, n, h, w, box.c.first), run);
      }
    }
  }
}

/// Calls visit(transfer, its first element) for transfers that lie one behind the other.
template <typename T, typename Visit>
void for_each_packed(std::span<const Transfer> transfers, T* first, Visit visit) {
  for (const Transfer& transfer : transfers) {
    visit(transfer, first);
    first += transfer.box.size();
  }
}

// One message for each transfer: what goes to one rank lies densely in the buffer.
std::vector<transport::Neighbour> neighbours_of(const Redistribution& plan, std::span<float> sent,
                                                std::span<float> received) {
  std::vector<transport::Neighbour> neighbours;
  const auto row = [](float* data, const Transfer& transfer) {
    return std::span(data, static_cast<std::size_t>(transfer.box.size()));
  };
  for_each_packed(plan.sends, sent.data(), [&](const Transfer& transfer, float* data) {
    neighbours.emplace_back(transfer.peer, transport::Strided<const float>(row(data, transfer)),
                            transport::Strided<float>());
  });
  for_each_packed(plan.receives, received.data(), [&](const Transfer& transfer, float* data) {
    neighbours.emplace_back(transfer.peer, transport::Strided<const float>(),
                            transport::Strided<float>(row(data, transfer)));
  });
  return neighbours;
}

// A row per pixel.
template <typename T>
transport::Strided<T> rows_of(const tensor::View<T>& view) {
  const auto channels = static_cast<std::size_t>(view.shape.c);
  const auto pixels = static_cast<std::size_t>(view.shape.n * view.shape.h * view.shape.w);
  return {view.data, pixels, channels, channels};
}

}  // namespace

// Boxes are copied in runs as long as both memories are dense: often whole images at once.
void copy_box(const Box& box, BoxView<const float> from, BoxView<float> into) {
  for_each_run(box, from, into, [](const float* source, float* target, std::int64_t count) {
    std::copy_n(source, count, target);
  });
}

void add_box(const Box& box, BoxView<const float> from, BoxView<float> into) {
  for_each_run(box, from, into, [](const float* source, float* target, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) target[i] += source[i];
  });
}

// The plan of messages refers to the two buffers, whose size the redistribution tells.
Exchange::Exchange(transport::Communicator& communicator, Redistribution plan, Box held, Box wanted,
                   std::pmr::memory_resource* memory, Arrival arrival)
    : plan_(std::move(plan)),
      held_(held),
      wanted_(wanted),
      arrival_(arrival),
      sent_(static_cast<std::size_t>(plan_.elements_sent()), memory),
      received_(static_cast<std::size_t>(plan_.elements_received()), memory) {
  if (!silent()) travel_ = communicator.plan_sendrecv(neighbours_of(plan_, sent_, received_));
}

// `from` may be overwritten when this returns: what is sent has been copied.
void Exchange::start(const float* from) {
  request_.wait();  // if the last run was given up: what it sends must not change
  for_each_packed(plan_.sends, sent_.data(), [&](const Transfer& transfer, float* data) {
    copy_box(transfer.box, {from, held_}, {data, transfer.box});
  });
  if (travel_.has_value()) request_ = travel_->start();
}

void Exchange::start(const float* from, float* to) {
  start(from);
  copy_box(plan_.kept, {from, held_}, {to, wanted_});
}

// The receives are in the plan's order, so that sums have the same bits every time.
void Exchange::finish(float* to) {
  request_.wait();
  const auto put = arrival_ == Arrival::adds ? add_box : copy_box;
  for_each_packed(std::span<const Transfer>(plan_.receives), std::as_const(received_).data(),
                  [&](const Transfer& transfer, const float* data) {
                    put(transfer.box, {data, transfer.box}, {to, wanted_});
                  });
}

std::size_t Exchange::bytes(const Redistribution& plan) noexcept {
  return static_cast<std::size_t>(plan.elements_sent() + plan.elements_received()) * sizeof(float);
}

std::vector<std::size_t> shares(std::int64_t channels, int parts, int first, int count) {
  std::vector<std::size_t> sizes;
  for (int part = first; part < first + count; ++part) {
    sizes.push_back(static_cast<std::size_t>(even_range(channels, parts, part).size()));
  }
  return sizes;
}

// A pixel is a row of a matrix, and each rank holds some of its columns. The transport gathers and
// scatters columns itself, without a copy.
ChannelExchange::ChannelExchange(transport::Communicator& ranks, std::vector<std::size_t> channels)
    : ranks_(ranks), channels_(std::move(channels)) {}

transport::Request ChannelExchange::allgather(tensor::View<const float> own,
                                              tensor::View<float> all) {
  return ranks_.allgather(rows_of(own), rows_of(all), channels_);
}

transport::Request ChannelExchange::reduce_scatter(tensor::View<const float> all,
                                                   tensor::View<float> own) {
  return ranks_.reduce_scatter(rows_of(all), rows_of(own), transport::ReduceOp::sum, channels_);
}

}  // namespace rondo::train
