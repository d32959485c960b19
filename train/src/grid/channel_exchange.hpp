#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <rondo/tensor/view.hpp>
#include <rondo/transport/communicator.hpp>

namespace rondo::train {

/// How many of `channels`, cut into so many parts, are in each of those from `first` on.
[[nodiscard]] std::vector<std::size_t> shares(std::int64_t channels, int parts, int first,
                                              int count);

/// Ranks that hold the same pixels, each some of their channels: `own` is this rank's channels,
/// `all` those of all ranks side by side, in rank order. Some may have none.
///
/// Views are dense and lent until the Request completes.
class ChannelExchange {
 public:
  /// Rank r of `ranks`, which are lent, holds channels[r] channels.
  ChannelExchange(transport::Communicator& ranks, std::vector<std::size_t> channels);

  /// `all` of every rank from every rank's `own`. Each sends its own to the others:
  /// (p - 1) / p of |all| where channels are even.
  [[nodiscard]] transport::Request allgather(tensor::View<const float> own,
                                             tensor::View<float> all);

  /// `own` of every rank from the sum of all ranks' `all`, which is not changed; as many words.
  [[nodiscard]] transport::Request reduce_scatter(tensor::View<const float> all,
                                                  tensor::View<float> own);

 private:
  transport::Communicator& ranks_;
  std::vector<std::size_t> channels_;
};

}  // namespace rondo::train
