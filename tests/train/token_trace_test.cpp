// The turns of a cyclic run, written and read again.

#include "schemes/cyclic.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>

#include "support/scratch_folder.hpp"
#include "train/error_text.hpp"

namespace rondo::train::token_trace_test {
namespace {

using Kind = sync::Turn::Kind;
using rondo::test::error_text;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(TokenTraceTest, ReadsBackWhatWasWritten) {
  const rondo::test::ScratchFolder folder;
  const auto file = folder.path() / "trace.jsonl";
  const sync::Turn push{Kind::push, 0, 3};
  const sync::Turn skip{Kind::skip, 1, 0};
  const sync::Turn park{Kind::park, 1, 2};

  append_token_trace(file, {{.turn = push}, {.turn = skip}});
  append_token_trace(file, {{.turn = park}});

  EXPECT_THAT(read_token_trace(file, 2), ElementsAre(push, skip, park));
}

TEST(TokenTraceTest, NamesTheLineThatIsNoTurn) {
  const rondo::test::ScratchFolder folder;
  const std::string good = "{\"worker\":1,\"kind\":\"push\",\"minibatches\":3}\n";
  for (const char* bad : {"x", "{}", "3", "{\"worker\":2,\"kind\":\"push\",\"minibatches\":3}",
                          "{\"worker\":0,\"kind\":\"pull\",\"minibatches\":3}",
                          "{\"worker\":0,\"kind\":\"push\",\"minibatches\":-1}"}) {
    const auto file = folder.write("trace.jsonl", good + bad + "\n");

    EXPECT_THAT(error_text<ConfigError>([&] { return read_token_trace(file, 2); }),
                HasSubstr("trace.jsonl:2: is no turn of one of 2 workers"))
        << bad;
  }
}

TEST(TokenTraceTest, NamesTheFileThatIsNotThere) {
  EXPECT_THAT(error_text<ConfigError>([] { return read_token_trace("/nonexistent", 2); }),
              HasSubstr("update.replay: /nonexistent cannot be read"));
}

}  // namespace
}  // namespace rondo::train::token_trace_test
