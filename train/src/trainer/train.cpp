#include <exception>
#include <optional>
#include <string>
#include <utility>

#include <rondo/transport/world.hpp>

#include "trainer/agreement.hpp"
#include "trainer/prepared_run.hpp"
#include "trainer/run_log.hpp"
#include "trainer/trainer.hpp"

namespace rondo::train {
namespace {

EpochMetrics run(Trainer& trainer) {
  trainer.join();
  trainer.announce();
  EpochMetrics last;
  while (!trainer.done()) last = trainer.run_epoch();
  trainer.finish();
  return last;
}

/// The error that ended the run is told; one more while telling it is not.
void end_by_error(RunLog& log, const Trainer& trainer, const std::string& error) noexcept {
  try {
    log.end(trainer.summary(error), true);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the first error matters
  }
}

}  // namespace

EpochMetrics train(transport::World& world, const Experiment& experiment,
                   const TrainerOptions& options) {
  std::optional<RunLog> log;
  std::optional<Trainer> trainer;
  agree_on(world, [&] { log.emplace(options, world.rank()); });
  PreparedRun prepared = prepare_run(world, experiment, options.dataset);
  agree_on(world, [&] { trainer.emplace(world, std::move(prepared), options, *log); });
  EpochMetrics last;
  try {
    end_together(world, [&] {
      last = run(*trainer);
      log->end(trainer->summary(trainer->cut_short() ? "max_steps" : "completed"), false);
    });
  } catch (const std::exception& error) {
    end_by_error(*log, *trainer, error.what());
    throw;
  } catch (...) {
    end_by_error(*log, *trainer, "an exception of an unknown type");
    throw;
  }
  return last;
}

}  // namespace rondo::train
