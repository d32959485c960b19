#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <rondo/train/compute_costs.hpp>
#include <rondo/train/export.hpp>
#include <rondo/train/plan_best.hpp>

namespace rondo::tensor {
class Engine;
}

namespace rondo::train {

/// Times of layers that were measured on this machine, kept in a file for later.
///
/// **What is measured**: each kernel alone, by the benchmark of model_benchmark.hpp, on memory that
/// stays warm. Of many samples only a part, as many as make about 1e9 flops (a fully connected
/// layer: at least 32), a power of two; time is taken to grow with the samples.
///
/// **What is not** is guessed at the fastest rate that the same layer had: flops of layers with
/// weights, elements of others. Of a layer without any measurement nothing is known: it is
/// free.
///
/// **The file** is an object of JSON. An entry is found by oneDNN's version, processor, threads and
/// the layer's numbers, so one file does for several machines. It is written aside and renamed;
/// entries that others have written meanwhile are kept. A file that cannot be understood is
/// replaced.
class RONDO_TRAIN_API ComputeTable final : public ComputeCosts {
 public:
  /// Reads `file`, if it exists; empty: nothing is kept. The team has so many threads.
  explicit ComputeTable(int threads, std::filesystem::path file = {});
  ~ComputeTable() override;

  [[nodiscard]] WorkSeconds seconds(const LocalWork& work) const override;
  [[nodiscard]] double update_seconds(std::size_t parameters) const override;

  /// Has just this shape been measured?
  [[nodiscard]] bool knows(const LocalWork& work) const;
  /// Measures it unless it is known, which takes up to some seconds. A layer for which oneDNN has
  /// only its reference kernel takes forever: infinity.
  void measure(const LocalWork& work);
  void measure_update(std::size_t parameters);

  /// How many shapes this table has measured itself.
  [[nodiscard]] int measurements() const noexcept { return measurements_; }
  /// Throws std::filesystem::filesystem_error or std::runtime_error that names the file.
  void save() const;

 private:
  [[nodiscard]] std::string key_of(const LocalWork& work) const;
  [[nodiscard]] std::string update_key() const;

  int threads_;
  std::filesystem::path file_;
  std::string machine_;
  std::map<std::string, WorkSeconds> times_;  ///< by key
  std::map<std::string, WorkSeconds> rates_;  ///< by layer, seconds per flop or element: the least
  std::unique_ptr<tensor::Engine> engine_;
  int measurements_ = 0;
};

/// best_plans() by a table that measures what the search needs, and no more: each layer as it is
/// without a split, then whatever the best plan would have its ranks run, until that plan has been
/// measured whole, or the table has measured `most_measurements` shapes. Splits seldom raise a
/// kernel's rate, so guesses are low and nothing better is missed by much.
[[nodiscard]] RONDO_TRAIN_API std::vector<BestPlan> measured_best_plans(const Model& model,
                                                                        const PlanOptions& options,
                                                                        ComputeTable& table,
                                                                        int most_measurements);

}  // namespace rondo::train
