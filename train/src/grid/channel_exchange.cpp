#include "grid/channel_exchange.hpp"

#include <utility>

#include <rondo/train/box.hpp>

namespace rondo::train {
namespace {

// A row per pixel.
template <typename T>
transport::Strided<T> rows_of(const tensor::View<T>& view) {
  const auto channels = static_cast<std::size_t>(view.shape.c);
  const auto pixels = static_cast<std::size_t>(view.shape.n * view.shape.h * view.shape.w);
  return {view.data, pixels, channels, channels};
}

}  // namespace

std::vector<std::size_t> shares(std::int64_t channels, int parts, int first, int count) {
  std::vector<std::size_t> sizes;
  for (int part = first; part < first + count; ++part) {
    sizes.push_back(static_cast<std::size_t>(even_range(channels, parts, part).size()));
  }
  return sizes;
}

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
