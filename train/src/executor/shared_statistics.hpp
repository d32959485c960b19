#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include <rondo/train/model.hpp>
#include <rondo/train/parameters.hpp>
#include <rondo/transport/communicator.hpp>

#include "config/grid_choice.hpp"

namespace rondo::train {

// Running statistics of the channels that several ranks of a replica hold, where each measures them
// by itself (BatchNormScope::rank).
//
// A rank whose part of a batch is empty leaves them as they are, so some have measured more often
// than others, and some never. Behind the statistics of the ParameterLayout there is therefore a
// number for every such layer: how much of the initial values is left in its statistics, 1 in the
// beginning. Whoever averages statistics over averaging groups averages it alike, and so it remains
// true.
class SharedStatistics {
 public:
  // `layout` is of the rank in this position of a replica.
  SharedStatistics(const Model& model, const GridChoice& choice, const ParameterLayout& layout,
                   int position);

  // Numbers behind the statistics; 0 where no two ranks of a replica measure the same.
  [[nodiscard]] std::size_t size() const noexcept { return layers_.size(); }

  // `statistics` are those of the layout, then these numbers.

  void start(std::span<float> statistics) const;

  // The same where the statistics were taken from elsewhere, as from a file: a rank that measures
  // counts as having measured them, and nothing of initial values is left. One that never does,
  // because its part is empty for each of these numbers of images that its replica computes at
  // once, has initial values again, so that it adds nothing to later means.
  void start_from_taken(std::span<const std::int64_t> numbers, std::span<float> statistics) const;

  // This rank has trained its part of `images` images of its replica.
  void count(std::int64_t images, std::span<float> statistics) const;

  // As slices_in_replica(), of all these layers: 1 where all ranks of a replica measure the same
  // channels.
  [[nodiscard]] std::set<int> slices() const;

  // Takes means over the ranks of a replica that measure the same channels, of what they have
  // measured; of the initial values there remains what the rank has that has measured most. For
  // layers with so many slices; `ranks` are those of this rank's slice. Collective.
  void average(transport::Communicator& ranks, int slices, std::span<float> statistics) const;

  // The same where one process has what all ranks of a replica hold: `ranks` and `statistics` are
  // by position.
  static void average(std::span<const SharedStatistics> ranks,
                      std::span<std::vector<float>> statistics);

 private:
  struct Layer {
    std::vector<Parameter> statistics = {};
    float kept = 1.0F;        //< of the values before, by every measurement
    bool has_pixels = false;  //< of the images of its part
    int parts = 1;            //< in which a batch is cut
    int part = 0;
    int slices = 1;  //< in which its channels are cut

    // This rank measures something of so many images of its replica.
    [[nodiscard]] bool measures(std::int64_t images) const;
  };

  // Averages one slice.
  static void average(std::span<const SharedStatistics> ranks,
                      std::span<std::vector<float>> statistics, int slices, int slice);

  // For the layers with so many slices, one after another: the share of the initial values that is
  // left, and the measured values.
  [[nodiscard]] std::vector<float> left(int slices, std::span<const float> statistics) const;
  [[nodiscard]] std::vector<double> measured(int slices, std::span<const float> statistics) const;
  // Puts back `sums` of what all have measured; the share `least` of the initial values remains.
  void put_back(int slices, std::span<const double> sums, std::span<const float> least,
                std::span<float> statistics) const;

  std::vector<Layer> layers_;
  std::size_t layout_size_;
};

}  // namespace rondo::train
