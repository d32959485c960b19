// Update schemes from libraries: `examples/elastic_averaging.cpp` trains, stops and goes on; what
// is no plug-in, or has other settings, is refused on all ranks.

#include <cstdlib>
#include <filesystem>
#include <new>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/scheme_plugin.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/error.hpp>

#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"
#include "support/world.hpp"
#include "train/experiments.hpp"

namespace rondo::train::scheme_plugin_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string plugin(const std::string& name) {
  return (std::filesystem::path(std::getenv("RONDO_TEST_SCHEMES")) / ("lib" + name + ".so"))
      .string();
}

Experiment with_plugin(const std::string& file, const TextTable& settings = {}) {
  Experiment experiment = test::small_experiment();
  experiment.update.plugin = file;
  experiment.update.plugin_settings = settings;
  return experiment;
}

std::string elastic_averaging() { return std::getenv("RONDO_ELASTIC_AVERAGING"); }

// The results of a run on rank 0.
struct PluginRun {
  std::string hash = {};  // empty where it was stopped
  int steps = 0;          // that this part of it has done
};

// On two ranks; `stop_at`: the step at whose end a checkpoint is written, and the run stops.
PluginRun run_of(const Experiment& experiment, const std::filesystem::path& folder = {},
                 int stop_at = 0) {
  PluginRun run;
  rondo::test::World{2}.run([&](transport::World& world) {
    int looks = 0;
    TrainerOptions options{.run_folder = world.rank() == 0 ? folder : "",
                           .resume = folder.empty() ? "" : "auto"};
    options.request = [&] {
      return ++looks == stop_at ? RunRequest::checkpoint_and_stop : RunRequest::none;
    };
    if (world.rank() == 0) options.on_step = [&run] { ++run.steps; };
    try {
      const EpochMetrics last = train(world, experiment, options);
      if (world.rank() == 0) run.hash = last.parameter_hash;
    } catch (const Stopped&) {
    }
  });
  return run;
}

std::string hash_of_run(const Experiment& experiment) { return run_of(experiment).hash; }

TEST(SchemePluginTest, ItsSchemeTrainsWithItsSettings) {
  const std::string elastic =
      hash_of_run(with_plugin(elastic_averaging(), {{"period", "2"}, {"pull", "0.5"}}));

  EXPECT_NE(elastic, "");
  EXPECT_NE(elastic, hash_of_run(with_plugin(elastic_averaging(), {{"period", "3"}})));
  EXPECT_NE(elastic, hash_of_run(test::small_experiment()));
}

TEST(SchemePluginTest, AStoppedRunGoesOnWithTheSameBits) {
  Experiment experiment = with_plugin(elastic_averaging(), {{"period", "2"}});
  experiment.train.log_every = 2;  // replicas that step alone agree to stop where they meet
  const rondo::test::ScratchFolder folder;

  const PluginRun whole = run_of(experiment);

  const PluginRun stopped = run_of(experiment, folder.path(), 2);
  const PluginRun resumed = run_of(experiment, folder.path());

  EXPECT_EQ(stopped.hash, "");
  EXPECT_EQ(stopped.steps, 2);
  EXPECT_EQ(resumed.steps, whole.steps - 2);
  EXPECT_EQ(resumed.hash, whole.hash);
}

void expect_refusal(const Experiment& experiment, const testing::Matcher<std::string>& text) {
  rondo::test::World{2}.run([&](transport::World& world) {
    EXPECT_THAT(rondo::test::error_text<ConfigError>([&] { train(world, experiment, {}); }), text);
  });
}

TEST(SchemePluginTest, RefusesWhatIsNoPlugin) {
  expect_refusal(with_plugin("/nonexistent.so"),
                 AllOf(HasSubstr("update.plugin: /nonexistent.so cannot be loaded: "),
                       HasSubstr("give its path")));
  expect_refusal(with_plugin(plugin("no_plugin")),
                 HasSubstr("is no plug-in: it defines no rondo_scheme_plugin"));
}

TEST(SchemePluginTest, RefusesAnotherVersion) {
  const std::string version = std::to_string(sync::scheme_plugin_version);
  expect_refusal(with_plugin(plugin("of_another_version")),
                 HasSubstr("and this is version " + version + "; compile it with"));
}

TEST(SchemePluginTest, RefusesSettingsThatItDoesNotKnow) {
  expect_refusal(with_plugin(elastic_averaging(), {{"perid", "2"}}),
                 AllOf(HasSubstr("update.plugin_settings: "),
                       HasSubstr("does not know perid; it knows period, pull")));
  expect_refusal(with_plugin(elastic_averaging(), {{"period", "often"}}),
                 HasSubstr("has made no scheme: period: \"often\" is not a number"));
  expect_refusal(with_plugin(elastic_averaging(), {{"period", "0"}}),
                 HasSubstr("period must be at least 1"));
}

TEST(SchemePluginTest, LostPeersAndALackOfMemoryStayWhatTheyAre) {
  rondo::test::World{1}.run([](transport::World& world) {
    EXPECT_THAT(rondo::test::error_text<transport::Error>(
                    [&] { train(world, with_plugin(plugin("fails")), {}); }),
                HasSubstr("a peer is gone"));
  });
  rondo::test::World{1}.run([](transport::World& world) {
    const Experiment experiment = with_plugin(plugin("fails"), {{"lacks", "memory"}});
    EXPECT_THROW(train(world, experiment, {}), std::bad_alloc);
  });
}

TEST(SchemePluginTest, StandsAlone) {
  Experiment two = with_plugin(elastic_averaging());
  two.update.scheme = "k_step";
  expect_refusal(two, HasSubstr("a scheme of your own takes its place"));
}

// Whoever raises the library's ABI version raises that of plug-ins, and then this number.
TEST(SchemePluginTest, ItsVersionBelongsToTheLibrarysAbi) {
  EXPECT_STREQ(RONDO_TEST_ABI, "0.2");
  EXPECT_EQ(sync::scheme_plugin_version, 2U);
}

}  // namespace
}  // namespace rondo::train::scheme_plugin_test
