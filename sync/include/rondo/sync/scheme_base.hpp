#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/sync/averages.hpp>
#include <rondo/sync/byte_stream.hpp>
#include <rondo/sync/export.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/replica.hpp>
#include <rondo/sync/scheme_description.hpp>
#include <rondo/sync/update_scheme.hpp>

namespace rondo::sync {

/// How a scheme's saved states begin. A restored state has the same.
struct StateFormat {
  std::uint32_t version = 1;
  std::string_view name = {};  ///< empty: the scheme's
};

/// What every scheme does alike, so that a scheme of one's own says only what is special in it:
/// tests/sync/periodic_average.hpp is one in some 40 lines.
///
/// - **Arguments**: the Replica and the optimizer are checked when the scheme is made.
/// - **Order of calls**: begin, every layer final once, finish; evaluation, flush and states only
///   between iterations. What is out of order throws as UpdateScheme says, and changes nothing.
/// - **States** are the scheme's name and version, its counters, what write_state() adds, and the
///   optimizer's state. restore() changes nothing unless all of it fits.
/// - **Evaluation** copies the parameters and averages the statistics, unless evaluate() says
///   otherwise.
///
/// A scheme implements end_iteration() and overrides of the others what it needs.
class RONDO_SYNC_API SchemeBase : public UpdateScheme {
 public:
  void begin(const Step& step) final;
  void gradients_final(std::size_t layer) final;
  void finish() final;
  void copy_for_evaluation(std::span<float> parameters, std::span<float> statistics) final;
  void flush() final;
  [[nodiscard]] std::vector<std::byte> save() const final;
  void restore(std::span<const std::byte> state) final;

  [[nodiscard]] SchemeCounters counters() const noexcept final { return counters_; }
  [[nodiscard]] const SchemeDescription& description() const noexcept final { return description_; }
  [[nodiscard]] bool wants_inner_sums() const noexcept override {
    return description_.steps_alone();
  }
  /// The parameters, if not overridden.
  [[nodiscard]] std::vector<std::span<const float>> replicated() const override;

 protected:
  /// Throws std::invalid_argument when the replica's arrays, layers and groups do not fit together,
  /// when layers of a scheme that steps alone have different `outer` groups, and when the optimizer
  /// is null or for another number of parameters.
  SchemeBase(const SchemeDescription& description, Replica replica,
             std::shared_ptr<Optimizer> optimizer, const StateFormat& format = {});

  // What a scheme may add. These are called in the order of UpdateScheme's calls.
  virtual void begin_iteration() {}
  virtual void layer_final(std::size_t /*layer*/) {}
  virtual void end_iteration() = 0;
  /// Fills both; the sizes are right. Counts its reductions as evaluation_reductions.
  virtual void evaluate(std::span<float> parameters, std::span<float> statistics);
  /// Brings what is pending into the parameters of every rank.
  virtual void apply_pending() {}
  /// Throws std::logic_error when `call`, an evaluation, a save() or a restore(), is impossible
  /// between these two iterations.
  virtual void expect_rest(std::string_view /*call*/) const {}

  /// Puts the scheme's own state, without counters and optimizer.
  virtual void write_state(ByteWriter& /*writer*/) const {}
  /// Reads it, throws where it does not fit, and changes nothing. Returns what takes it over.
  [[nodiscard]] virtual std::function<void()> read_state(ByteReader& /*reader*/) {
    return [] {};
  }
  /// Does the base save the optimizer's state? Otherwise write_state() and read_state() do.
  [[nodiscard]] virtual bool saves_optimizer() const noexcept { return true; }

  // What a scheme works with.
  [[nodiscard]] const Replica& replica() const noexcept { return replica_; }
  [[nodiscard]] Optimizer& optimizer() noexcept { return *optimizer_; }
  [[nodiscard]] const Optimizer& optimizer() const noexcept { return *optimizer_; }
  /// The current iteration's, or else the last one's.
  [[nodiscard]] const Step& step() const noexcept { return step_; }
  /// To be added to.
  [[nodiscard]] SchemeCounters& counted() noexcept { return counters_; }
  /// The one `outer` group of all layers, of a scheme that steps alone.
  [[nodiscard]] transport::Communicator& outer() const noexcept { return *outer_; }

  /// Writes the mean over the ranks of the replica's statistics. Returns whether ranks had to meet
  /// for it, which is not counted.
  bool average_statistics(std::span<float> mean);

  /// Throws std::invalid_argument, beginning with the scheme's name.
  [[noreturn]] void refuse(const std::string& reason) const;
  /// refuse()s, naming the layer, unless each of `layers`, some of the replica's, is whole on every
  /// rank and reduced over all of them: for what is computed from a reduced gradient and must come
  /// out alike everywhere. `what` needs it: an option's name, or empty.
  void expect_whole_layers(std::string_view what, std::span<const Layer> layers) const;

 private:
  void expect_open(std::string_view call) const;
  void expect_between(std::string_view call) const;
  [[nodiscard]] transport::Communicator* common_outer() const;
  [[nodiscard]] std::string named(std::string_view text) const;

  SchemeDescription description_;
  StateFormat format_;
  Replica replica_;
  std::shared_ptr<Optimizer> optimizer_;
  transport::Communicator* outer_;
  StatisticsMean statistics_mean_;
  std::vector<std::uint8_t> final_;  // by layer, in this iteration
  Step step_;
  bool open_ = false;  // is there an iteration under way?
  SchemeCounters counters_;
};

}  // namespace rondo::sync
