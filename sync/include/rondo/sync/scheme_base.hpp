#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <rondo/sync/export.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/replica.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/transport/element.hpp>
#include <rondo/transport/request.hpp>

namespace rondo::sync {

class Copies;

/// Collects the state of one object as bytes, for the ByteReader of the same name and version.
///
/// A stream is: the name's length and characters, the version, then values in the order written,
/// each as it lies in memory; an array is preceded by its count. A stream may hold others as
/// arrays of bytes.
class RONDO_SYNC_API ByteWriter {
 public:
  ByteWriter(std::string_view name, std::uint32_t version);

  template <typename T>
    requires std::is_arithmetic_v<T>
  void put(T value) {
    append(std::as_bytes(std::span<const T>(&value, 1)));
  }

  template <typename T>
    requires std::is_trivially_copyable_v<T>
  void put_array(std::span<const T> values) {
    put(static_cast<std::uint64_t>(values.size()));
    append(std::as_bytes(values));
  }

  /// What was written; the writer is spent.
  [[nodiscard]] std::vector<std::byte> take() noexcept { return std::move(bytes_); }

 private:
  void append(std::span<const std::byte> bytes);

  std::vector<std::byte> bytes_;
};

/// Reads back what a ByteWriter of the same name and version wrote.
///
/// Everything that does not fit throws std::invalid_argument, whose text begins with the name.
class RONDO_SYNC_API ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string_view name, std::uint32_t version);

  template <typename T>
    requires std::is_arithmetic_v<T>
  [[nodiscard]] T get() {
    T value{};
    copy(std::as_writable_bytes(std::span<T>(&value, 1)));
    return value;
  }

  /// An array of exactly values.size() elements.
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  void get_array(std::span<T> values) {
    expect_count(values.size());
    copy(std::as_writable_bytes(values));
  }

  /// An array of bytes of any length, as a part of the input.
  [[nodiscard]] std::span<const std::byte> get_bytes();

  /// Throws unless all has been read.
  void expect_end() const;

  /// Throws for a reason of the caller's own: what was read does not fit.
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  void copy(std::span<std::byte> into);
  void expect_count(std::size_t expected);

  std::span<const std::byte> rest_;
  std::string name_;
};

/// A scheme's counters as a part of its state.
RONDO_SYNC_API void write_counters(ByteWriter& writer, const SchemeCounters& counters);
[[nodiscard]] RONDO_SYNC_API SchemeCounters read_counters(ByteReader& reader);

/// The plain mean of the statistics of the ranks that hold the same, for evaluation.
///
/// Summed in double, where sums of equal floats are exact: ranks that agree get what they
/// had.
class RONDO_SYNC_API StatisticsMean {
 public:
  explicit StatisticsMean(const Replica& replica);

  /// Is there anything to reduce?
  [[nodiscard]] bool reduces() const noexcept;

  /// Writes the mean of the ranks' `mine` to `mean`. Collective, unless reduces() is false.
  void compute(std::span<const float> mine, std::span<float> mean);

 private:
  transport::Communicator& ranks_;
  std::pmr::vector<double> sums_;  // in the arena
};

/// This rank's displacement w - W, its statistics and perhaps its optimizer's state, side by side
/// in the arena, to be averaged over a group in one collective. A copy: where that fails, nothing
/// of the model has changed.
///
/// Displacements may be sent as bf16, which halves their bytes; all else stays fp32.
///
/// Displacement and state are weighed, statistics are not. Behind them lies the weight, so that
/// each rank also gets the sum of all; ranks of equal weights 1 get the bits of a plain mean.
///
/// Ranks of a replica that hold the same elements (Slices::copies) get the same bits of them: where
/// their groups may sum in different orders, the first of them sends the others its mean.
class RONDO_SYNC_API PackedMean {
 public:
  /// `replica` is lent. `state_size`: values of optimizer state that pack() may be given, arrays as
  /// long as the parameters. Collective over all ranks where replicas have several.
  explicit PackedMean(const Replica& replica, std::size_t state_size = 0);

  /// Copies in what this rank has, which counts `weight` times. `start` is W; if it is empty, W is
  /// zero and the displacement is the parameters themselves. `state` may be empty.
  void pack(std::span<const float> start, std::span<const float> state, float weight) {
    pack(replica_.parameters, start, state, weight);
  }
  /// The same of other parameters than the replica's.
  void pack(std::span<const float> parameters, std::span<const float> start,
            std::span<const float> state, float weight);

  /// Makes room for displacements as bf16, which post() else does when it first needs it.
  void prepare_bf16() { rounded_.resize(replica_.parameters.size()); }

  /// Adds to the displacement what earlier averages have left out of it (see post()).
  void add_unsent(std::span<const float> unsent);

  /// Replaces what was packed by its mean over the ranks of `group`, which are several. Waits.
  void reduce(transport::Communicator& group, std::span<float> unsent = {}) {
    post(group, unsent);
    wait();
  }
  /// The same in two calls. In between nothing but a wait() may be called. If `unsent` is not empty
  /// it is as long as the displacement, which is sent as bf16: with `unsent` added, which then
  /// holds what rounding has left out.
  void post(transport::Communicator& group, std::span<float> unsent = {});
  void wait();

  /// Has any of the ranks a weight? Else there is neither a displacement nor a mean of states.
  [[nodiscard]] bool has_weight() const noexcept { return packed_.back() > 0.0F; }

  /// Bytes that a rank has contributed to the last reduction, and in how many collectives.
  [[nodiscard]] std::size_t bytes() const noexcept;
  [[nodiscard]] std::uint64_t collectives() const noexcept { return rounds_ ? 2 : 1; }

  [[nodiscard]] std::span<float> displacement() noexcept {
    return packed_.first(replica_.parameters.size());
  }
  [[nodiscard]] std::span<float> statistics() noexcept {
    return packed_.subspan(replica_.parameters.size(), replica_.statistics.size());
  }
  [[nodiscard]] std::span<float> state() noexcept {
    const std::size_t first = replica_.parameters.size() + replica_.statistics.size();
    return packed_.subspan(first, packed_.size() - 1 - first);
  }

 private:
  void weigh(float factor);
  void equal_copies();

  const Replica& replica_;
  std::pmr::vector<float> memory_;                 // in the arena
  std::span<float> packed_;                        // what of it is in use; the weight is last
  std::pmr::vector<transport::Bfloat16> rounded_;  // of the displacement, in the arena
  bool rounds_ = false;                            // was the last reduction in bf16?
  transport::Request request_;                     // goes first, as the next, since it may wait
  transport::Request rest_;                        // of all but the displacement, in bf16
  int ranks_ = 0;                                  // of the reduction that was posted; 0: none is
  std::shared_ptr<const Copies> copies_;           // of which ranks may get other bits
};

/// How a scheme's saved states begin. A restored state has the same.
struct StateFormat {
  std::uint32_t version = 1;
  std::string_view name = {};  ///< empty: the scheme's
};

/// The common part of all schemes, so that a scheme of one's own says only what is special in it:
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

  // Parts that a scheme may add. These are called in the order of UpdateScheme's calls.
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

  // The objects that a scheme works with.
  [[nodiscard]] const Replica& replica() const noexcept { return replica_; }
  [[nodiscard]] Optimizer& optimizer() noexcept { return *optimizer_; }
  [[nodiscard]] const Optimizer& optimizer() const noexcept { return *optimizer_; }
  /// The current iteration's, or else the last one's.
  [[nodiscard]] const Step& step() const noexcept { return step_; }
  /// To be added to.
  [[nodiscard]] SchemeCounters& counted() noexcept { return counters_; }
  /// The one `outer` group of all layers, of a scheme that steps alone.
  [[nodiscard]] transport::Communicator& outer() const noexcept { return *outer_; }

  /// Writes the mean over the ranks of the replica's statistics. Returns whether ranks had to
  /// communicate for it, which is not counted.
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
