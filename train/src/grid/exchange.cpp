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
#include <type_traits>
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
template <typename From, typename Into, typename Move>
void for_each_run(const Box& box, const ConstBoxView& from, const BoxView& into, Move move) {
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
        move(static_cast<const From*>(from.data) + offset_of(from.box, n, h, w, box.c.first),
             static_cast<Into*>(into.data) + offset_of(into.box, n, h, w, box.c.first), run);
      }
    }
  }
}

template <typename From, typename Into>
void copy_elements(const Box& box, const ConstBoxView& from, const BoxView& into) {
  for_each_run<From, Into>(box, from, into,
                           [](const From* source, Into* target, std::int64_t count) {
                             if constexpr (std::is_same_v<From, Into>) {
                               std::copy_n(source, count, target);
                             } else {
                               std::transform(source, source + count, target, [](From value) {
                                 return tensor::from_float<Into>(tensor::to_float(value));
                               });
                             }
                           });
}

/// Calls visit(transfer, where its elements begin) for transfers that lie one behind the other.
template <typename Visit>
void for_each_packed(std::span<const Transfer> transfers, const tensor::AnyTensor& buffer,
                     Visit visit) {
  auto* first = static_cast<std::byte*>(buffer.data());
  for (const Transfer& transfer : transfers) {
    visit(transfer, first);
    first += static_cast<std::size_t>(transfer.box.size()) * tensor::size_of(buffer.type());
  }
}

tensor::AnyTensor make_buffer(std::int64_t elements, tensor::DataType type,
                              std::pmr::memory_resource* memory) {
  return elements == 0 ? tensor::AnyTensor({}, type)
                       : tensor::AnyTensor({1, 1, 1, elements}, type, memory);
}

// How the transport calls the type.
template <typename T>
using OnTheWire = std::conditional_t<std::is_same_v<T, float>, float, transport::Bfloat16>;

// One message for each transfer: what goes to one rank lies densely in the buffer.
std::vector<transport::Neighbour> neighbours_of(const Redistribution& plan,
                                                const tensor::AnyTensor& sent,
                                                const tensor::AnyTensor& received) {
  std::vector<transport::Neighbour> neighbours;
  tensor::with_type(sent.type(), [&]<typename T>(T /*of*/) {
    using Out = transport::Strided<const OnTheWire<T>>;
    using In = transport::Strided<OnTheWire<T>>;
    const auto row = [](std::byte* data, const Transfer& transfer) {
      return std::span(reinterpret_cast<OnTheWire<T>*>(data),
                       static_cast<std::size_t>(transfer.box.size()));
    };
    for_each_packed(plan.sends, sent, [&](const Transfer& transfer, std::byte* data) {
      neighbours.emplace_back(transfer.peer, Out(row(data, transfer)), In());
    });
    for_each_packed(plan.receives, received, [&](const Transfer& transfer, std::byte* data) {
      neighbours.emplace_back(transfer.peer, Out(), In(row(data, transfer)));
    });
  });
  return neighbours;
}

// A row per pixel.
template <typename T, typename View>
transport::Strided<T> rows_of(const View& view) {
  const auto channels = static_cast<std::size_t>(view.shape.c);
  const auto pixels = static_cast<std::size_t>(view.shape.n * view.shape.h * view.shape.w);
  return {static_cast<T*>(view.data), pixels, channels, channels};
}

}  // namespace

// Boxes are copied in runs as long as both memories are dense: often whole images at once.
void copy_box(const Box& box, const ConstBoxView& from, const BoxView& into) {
  tensor::with_type(from.type, [&]<typename From>(From /*of*/) {
    tensor::with_type(
        into.type, [&]<typename Into>(Into /*of*/) { copy_elements<From, Into>(box, from, into); });
  });
}

void add_box(const Box& box, const ConstBoxView& from, const BoxView& into) {
  tensor::with_type(into.type, [&]<typename T>(T /*of*/) {
    for_each_run<T, T>(box, from, into, [](const T* source, T* target, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        target[i] =
            tensor::from_float<T>(tensor::to_float(target[i]) + tensor::to_float(source[i]));
      }
    });
  });
}

// The plan of messages refers to the two buffers, whose size the redistribution tells.
Exchange::Exchange(transport::Communicator& communicator, Redistribution plan, Box held, Box wanted,
                   std::pmr::memory_resource* memory, Arrival arrival, tensor::DataType type)
    : plan_(std::move(plan)),
      held_(held),
      wanted_(wanted),
      arrival_(arrival),
      sent_(make_buffer(plan_.elements_sent(), type, memory)),
      received_(make_buffer(plan_.elements_received(), type, memory)) {
  if (!silent()) travel_ = communicator.plan_sendrecv(neighbours_of(plan_, sent_, received_));
}

// `from` may be overwritten when this returns: what is sent has been copied.
void Exchange::start(const void* from) {
  request_.wait();  // if the last run was given up: what it sends must not change
  for_each_packed(plan_.sends, sent_, [&](const Transfer& transfer, std::byte* data) {
    copy_box(transfer.box, {from, held_, sent_.type()}, {data, transfer.box, sent_.type()});
  });
  if (travel_.has_value()) request_ = travel_->start();
}

void Exchange::start(const void* from, void* to) {
  start(from);
  copy_box(plan_.kept, {from, held_, sent_.type()}, {to, wanted_, sent_.type()});
}

// The receives are in the plan's order, so that sums have the same bits every time.
void Exchange::finish(void* to) {
  request_.wait();
  const auto put = arrival_ == Arrival::adds ? add_box : copy_box;
  const tensor::DataType type = received_.type();
  for_each_packed(plan_.receives, received_, [&](const Transfer& transfer, std::byte* data) {
    put(transfer.box, {data, transfer.box, type}, {to, wanted_, type});
  });
}

std::size_t Exchange::bytes(const Redistribution& plan, tensor::DataType type) noexcept {
  return static_cast<std::size_t>(plan.elements_sent() + plan.elements_received()) *
         tensor::size_of(type);
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

transport::Request ChannelExchange::allgather(tensor::ConstAnyView own, tensor::AnyView all) {
  if (own.type == tensor::DataType::f32) {
    return ranks_.allgather(rows_of<const float>(own), rows_of<float>(all), channels_);
  }
  return ranks_.allgather(rows_of<const transport::Bfloat16>(own),
                          rows_of<transport::Bfloat16>(all), channels_);
}

transport::Request ChannelExchange::reduce_scatter(tensor::View<const float> all,
                                                   tensor::View<float> own) {
  return ranks_.reduce_scatter(rows_of<const float>(all), rows_of<float>(own),
                               transport::ReduceOp::sum, channels_);
}

}  // namespace rondo::train
