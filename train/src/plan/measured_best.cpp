#include <rondo/train/compute_table.hpp>
#include <rondo/train/scaling.hpp>

namespace rondo::train {

std::vector<BestPlan> measured_best_plans(const Model& model, const PlanOptions& options,
                                          ComputeTable& table, int most_measurements) {
  const std::int64_t samples = (options.batch + options.ranks - 1) / options.ranks;
  for (const LocalWork& work : unsplit_work(model, samples)) table.measure(work);
  while (true) {
    std::vector<BestPlan> plans = best_plans(model, options, table);
    bool all_known = true;
    for (const LocalWork& work : work_of(model, options, plans.front())) {
      const bool known = table.knows(work);
      if (!known && table.measurements() >= most_measurements) return plans;
      all_known = all_known && known;
      table.measure(work);  // what is known still teaches the layer's rate
    }
    if (all_known) return plans;
  }
}

}  // namespace rondo::train
