// The test set's loss after an epoch, and the model after the last.
//
// Under most schemes the copy that is evaluated has the bits of the parameters that are trained.
// Where a scheme holds something back, such as an open window or an average under way, only the
// copy has it: then a checkpoint has both, because the run goes on with the one and is known by the
// accuracy of the other.

#include "trainer/evaluation.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "executor/lowering.hpp"
#include "trainer/agreement.hpp"
#include "weights/checksum.hpp"

namespace rondo::train {
namespace {

/// Samples [first, first + size) of the test set, and which of them count, from the first on.
struct TestBatch {
  std::int64_t first = 0;
  Range counted = {};
};

// All batches have the same size, for which there are kernels. Where the share ends within one, the
// batch has samples of neighbours besides, which are not counted.
TestBatch test_batch_from(std::int64_t next, Range share, std::int64_t size, std::int64_t all) {
  // At the end of the test set the batch reaches back instead of beyond.
  const std::int64_t first = std::min(next, all - size);
  const std::int64_t last = std::min(share.last, first + size);
  return {.first = first, .counted = {next - first, last - first}};
}

/// Some ranks of a grid hold nothing of one kind; then nothing is sent.
void send_some(transport::Communicator& replica, std::span<const float> values) {
  if (!values.empty()) replica.send(values, 0).wait();
}

std::vector<float> receive_some(transport::Communicator& replica, std::size_t size, int rank) {
  std::vector<float> values(size);
  if (size > 0) replica.recv(std::span(values), rank).wait();
  return values;
}

bool differ(std::span<const float> a, std::span<const float> b) {
  return std::memcmp(a.data(), b.data(), a.size_bytes()) != 0;
}

}  // namespace

Evaluation::Evaluation(TrainedState& state)
    : state_(state), parameters_(&state.memory), statistics_(&state.memory) {
  const auto allocate = [&](const char* purpose, std::size_t elements,
                            std::pmr::vector<float>& array) {
    const MemoryScope scope(&state.memory, purpose);
    array.assign(elements, 0.0F);
  };
  allocate("the copy of parameters for evaluation", state.parameters.size(), parameters_);
  allocate("the copy of statistics for evaluation", state.statistics.size(), statistics_);
}

void Evaluation::copy() {
  state_.scheme->copy_for_evaluation(parameters_, statistics_);
  state_.grid.average_statistics(statistics_);
  step_ = state_.run.step;
}

void Evaluation::copy_if_empty() {
  if (step_ < 0) copy();
}

std::span<const float> Evaluation::model_statistics() const {
  return std::span(statistics_).first(state_.layout.statistic_count);
}

TestFigures Evaluation::test() {
  const std::uint64_t before = state_.scheme->counters().evaluation_reductions;
  const auto began = std::chrono::steady_clock::now();
  // The arrays that must be equal on all replicas; a scheme whose replicas differ by design names
  // none, or fewer.
  check_replicas(state_.world.communicator(), state_.grid.grid(),
                 hash_of(state_.scheme->replicated()), state_.run.epoch);
  copy();
  const LossSums own = test_own_share();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  const auto [loss, correct, samples, seconds] =
      sum_over_ranks(state_.world, std::array{own.loss, own.correct, own.samples, took.count()});
  if (!std::isfinite(loss)) {
    throw_on_all("the test loss is NaN or Inf after step " + std::to_string(step_) +
                 "; a smaller learning rate or a warm-up may help");
  }
  return {.sums = {loss, correct, samples},
          .seconds = seconds / state_.world.size(),
          .reductions = state_.scheme->counters().evaluation_reductions - before,
          .parameter_hash = hash_of({parameters_})};
}

LossSums Evaluation::test_own_share() {
  LossSums own;
  const std::int64_t all = state_.dataset->test.shape.n;
  const Range share = even_range(all, state_.grid.grid().pc, state_.grid.replica());
  const std::int64_t size = state_.evaluation_batch();
  for (std::int64_t next = share.first; next < share.last;) {
    const auto [first, counted] = test_batch_from(next, share, size, all);
    next = first + counted.last;
    Range following;
    if (next < share.last) {
      const std::int64_t begin = test_batch_from(next, share, size, all).first;
      following = {begin, begin + size};
    }
    const Batch batch = state_.batches.load_test(first, first + size, following);
    const tensor::Loss loss =
        state_.executor->evaluate(batch, parameters_, model_statistics(), counted);
    own.add(loss, state_.executor->counted());
  }
  return own;
}

// Rank 0 collects the parts of the ranks of its replica, one after another. Whether it has a
// folder, it alone knows.
void Evaluation::save_model() {
  const std::filesystem::path& folder = state_.options.run_folder;
  const bool wanted = state_.world.rank() == 0 && !folder.empty();
  // All ranks ask, because those of rank 0's replica have to send.
  const auto [wants] = sum_over_ranks(state_.world, std::array{wanted ? 1.0 : 0.0});
  if (wants == 0.0) return;
  const ModelWeights weights = gather_weights();
  agree_on_first_rank(state_.world, [&] {
    save_weights(folder / "model.safetensors", state_.model, *state_.dataset, weights);
  });
}

// On rank 0; empty on others, which send theirs.
ModelWeights Evaluation::gather_weights() {
  GridMembership& grid = state_.grid;
  if (grid.replica() != 0) return {};
  if (state_.world.rank() != 0) {
    send_some(grid.own_replica(), parameters_);
    send_some(grid.own_replica(), model_statistics());
    return {};
  }
  const ParameterLayout whole = layout_of(state_.model);
  ModelWeights weights;
  add_part(state_.layout, parameters_, model_statistics(), whole, weights);
  const Lowering lowering = lower(state_.model, grid.choice().splits, grid.grid().pr, 1);
  for (int rank = 1; rank < grid.grid().pr; ++rank) {
    // The part that another rank holds is computed here: no rank tells where its slices belong.
    const ParameterLayout part = layout_of(state_.model, lowering, rank);
    const auto parameters = receive_some(grid.own_replica(), part.parameter_count, rank);
    const auto statistics = receive_some(grid.own_replica(), part.statistic_count, rank);
    add_part(part, parameters, statistics, whole, weights);
  }
  return weights;
}

// A checkpoint that a run on other ranks left when it began has nothing else than what ranks hold.
void Evaluation::restore() {
  const ResumedCheckpoint& checkpoint = *state_.resumed;
  std::ranges::copy(state_.parameters, parameters_.begin());
  std::ranges::copy(state_.statistics, statistics_.begin());
  read_evaluated(checkpoint.path, checkpoint.manifest.file_of(state_.world.rank(), Part::evaluated),
                 parameters_, statistics_);
  step_ = state_.run.step;
}

EvaluatedPart Evaluation::part() const {
  EvaluatedPart part;
  if (step_ != state_.run.step || state_.parameters.empty()) return part;
  if (differ(parameters_, state_.parameters)) part.parameters = parameters_;
  part.statistics = statistics_;
  return part;
}

}  // namespace rondo::train
