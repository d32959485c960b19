// How a Trainer judges its model: on a copy, with the test set split over the ranks.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <string>

#include <rondo/transport/world.hpp>

#include "trainer/parameter_hash.hpp"
#include "trainer/rank_sums.hpp"
#include "trainer/replica_check.hpp"
#include "trainer/trainer.hpp"

namespace rondo::train {
namespace {

/// Samples [first, first + size) of the test set, and which of them count, from the first on.
struct TestBatch {
  std::int64_t first = 0;
  Range judged = {};
};

// All batches have the same size, for which there are kernels. Where the share ends within one, the
// batch has samples of neighbours besides, which are not counted.
TestBatch test_batch_from(std::int64_t next, Range share, std::int64_t size, std::int64_t all) {
  const std::int64_t first = std::min(next, all - size);
  const std::int64_t last = std::min(share.last, first + size);
  return {.first = first, .judged = {next - first, last - first}};
}

}  // namespace

Range Trainer::test_share() const {
  return even_range(dataset_->test.shape.n, grid_.grid().pc, grid_.group());
}

Trainer::Evaluation Trainer::evaluate() {
  const auto began = std::chrono::steady_clock::now();
  check_replicas(world_.communicator(), grid_.grid(), hash_of(scheme_->replicated()), epoch_);
  scheme_->copy_for_evaluation(evaluated_parameters_, evaluated_statistics_);
  grid_.average_statistics(evaluated_statistics_);

  LossSums own;
  const auto statistics = std::span(evaluated_statistics_).first(layout_.statistic_count);
  const Range share = test_share();
  const std::int64_t size = evaluation_batch();
  for (std::int64_t next = share.first; next < share.last;) {
    const auto [first, judged] = test_batch_from(next, share, size, dataset_->test.shape.n);
    const Batch batch = batches_.load_test(first, first + size);
    own.add(executor_->evaluate(batch, evaluated_parameters_, statistics, judged),
            grid_.speaks() ? judged.size() : 0);
    next = first + judged.last;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  const auto [loss, correct, samples, seconds] =
      sum_over_ranks(world_, std::array{own.loss, own.correct, own.samples, took.count()});
  if (!std::isfinite(loss)) {
    throw NumericError("the test loss is NaN or Inf after step " + std::to_string(step_) +
                       "; a smaller learning rate or a warm-up may help");
  }
  return {.sums = {loss, correct, samples},
          .seconds = seconds / world_.size(),
          .parameter_hash = to_text(hash_of({evaluated_parameters_}))};
}

}  // namespace rondo::train
