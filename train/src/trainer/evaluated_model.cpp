// The copy of a model that is evaluated, saved at the end of a run, and kept in a checkpoint.
//
// Under most schemes it has the bits of the parameters that are trained. Where a scheme holds
// something back, such as an open window or an average under way, only the copy has it: then a
// checkpoint has both, because the run goes on with the one and is known by the accuracy of the
// other.

#include "trainer/evaluated_model.hpp"

#include <algorithm>
#include <cstring>

namespace rondo::train {

EvaluatedModel::EvaluatedModel(AccountedMemory& memory, std::size_t parameters,
                               std::size_t statistics)
    : parameters_(&memory), statistics_(&memory) {
  const auto allocate = [&](const char* purpose, std::size_t elements,
                            std::pmr::vector<float>& array) {
    const MemoryScope scope(&memory, purpose);
    array.assign(elements, 0.0F);
  };
  allocate("the copy of parameters for evaluation", parameters, parameters_);
  allocate("the copy of statistics for evaluation", statistics, statistics_);
}

void EvaluatedModel::copy(sync::UpdateScheme& scheme, GridMembership& grid, std::int64_t step) {
  scheme.copy_for_evaluation(parameters_, statistics_);
  grid.average_statistics(statistics_);
  step_ = step;
}

void EvaluatedModel::restore(const ResumedCheckpoint& checkpoint, int rank, std::int64_t step,
                             std::span<const float> trained_parameters,
                             std::span<const float> trained_statistics) {
  const CheckpointFile& file = checkpoint.manifest.file_of(rank, Part::evaluated);
  // A checkpoint that a run on other ranks left when it began has nothing else than what ranks
  // hold.
  std::ranges::copy(trained_parameters, parameters_.begin());
  std::ranges::copy(trained_statistics, statistics_.begin());
  read_evaluated(checkpoint.path, file, parameters_, statistics_);
  step_ = step;
}

namespace {

bool differ(std::span<const float> a, std::span<const float> b) {
  return std::memcmp(a.data(), b.data(), a.size_bytes()) != 0;
}

}  // namespace

EvaluatedPart EvaluatedModel::part(std::int64_t step,
                                   std::span<const float> trained_parameters) const {
  EvaluatedPart part;
  if (step_ != step || trained_parameters.empty()) return part;
  if (differ(parameters_, trained_parameters)) part.parameters = parameters_;
  part.statistics = statistics_;
  return part;
}

}  // namespace rondo::train
