// `rondo eval`, `predict`, `export` and `inspect` as a program, on the model of one small run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/scratch_folder.hpp"
#include "tools/runs.hpp"

namespace rondo::test::trained_model_test {
namespace {

namespace fs = std::filesystem;

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

const char* const resnet_run = R"(
[data]
name = "synthetic"
shape = [8, 8, 3]
classes = 4
training = 128
test = 40
[model]
name = "resnet8"
[train]
global_batch = 32
[checkpoint]
every_epochs = 1
)";

// The run is made once, by the first case.
class TrainedModelTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = std::make_unique<ScratchFolder>();
    scratch_->write("run.toml", resnet_run);
    scratch_->write("grey.pgm", "P5 16 8 255\n" + std::string(128, '\x40'));
    scratch_->write("red.ppm", "P6 8 8 255\n" + reds());
    const Ended ended = rondo({"train", config(), "--out", run(), "-n", "1", "--threads", "1"});
    ASSERT_EQ(ended.status, 0) << ended.err;
  }
  static void TearDownTestSuite() { scratch_.reset(); }

  static std::string reds() {
    std::string pixels;
    for (int i = 0; i < 64; ++i) pixels += std::string("\xff\0\0", 3);
    return pixels;
  }

  static std::string in(const std::string& name) { return scratch_->path() / name; }
  static void write(const std::string& name, const std::string& bytes) {
    scratch_->write(name, bytes);
  }
  static std::string config() { return in("run.toml"); }
  static std::string run() { return in("run"); }

  // One line of error, and the status.
  static void expect_refused(const std::vector<std::string>& arguments, int status,
                             const std::string& text) {
    const Ended ended = rondo(arguments);
    EXPECT_EQ(ended.status, status) << ended.err;
    EXPECT_THAT(lines(ended.err), testing::Contains(HasSubstr(text)));
  }

  static void expect_refused_everywhere(const std::string& file, const std::string& problem) {
    expect_refused({"predict", config(), in("red.ppm"), "--weights", file}, 3, problem);
    expect_refused({"eval", config(), "--weights", file, "-n", "2"}, 3, problem);
    expect_refused({"export", config(), "--weights", file, "-o", in("out.safetensors")}, 3,
                   problem);
    expect_refused(
        {"train", config(), "--set", "model.weights=\"" + file + "\"", "--out", in("new")}, 3,
        problem);
  }

  static std::string model() { return run() + "/model.safetensors"; }

  // The run's model as `edit` leaves it. The file begins with the length of its header; behind that
  // are the values.
  static std::string edited_model(
      const std::function<void(json& header, std::string& values)>& edit) {
    const std::string bytes = contents(model());
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    json header = json::parse(bytes.substr(sizeof length, length));
    std::string values = bytes.substr(sizeof length + length);
    edit(header, values);
    std::string text = header.dump();
    text.append(8 - text.size() % 8, ' ');
    length = text.size();
    std::string begin(sizeof length, '\0');
    std::memcpy(begin.data(), &length, sizeof length);
    return begin + text + values;
  }
  static std::string with_values_of(char byte) {
    return edited_model([byte](json&, std::string& values) { std::ranges::fill(values, byte); });
  }

  // As a program writes it that knows nothing of it.
  static std::string without_checksum(std::string model) {
    const std::string key = "rondo.xxh3";
    return model.replace(model.find(key), key.size(), "other.xxh3");
  }

  static json last_epoch() { return events_in(contents(run() + "/metrics.jsonl"), "epoch").back(); }

 private:
  static inline std::unique_ptr<ScratchFolder> scratch_;
};

TEST_F(TrainedModelTest, EvaluatesARunOnAnyNumberOfRanks) {
  for (const char* ranks : {"1", "2"}) {
    const Ended ended = rondo({"eval", run(), "-n", ranks, "--threads", "1", "--format", "json"});
    ASSERT_EQ(ended.status, 0) << ended.err;

    const json result = json::parse(ended.out);
    EXPECT_EQ(result["images"], 40);
    EXPECT_EQ(result["ranks"], std::stoi(ranks));
    EXPECT_EQ(result["accuracy"], last_epoch()["accuracy"]);
    EXPECT_NEAR(result["loss"].get<double>(), last_epoch()["test_loss"].get<double>(), 1e-5);
  }
}

TEST_F(TrainedModelTest, EvaluatesAConfigurationWithAFileAsATable) {
  const Ended ended = rondo({"eval", config(), "--weights", model(), "--threads", "1"});

  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(lines(ended.out),
              ElementsAre(StartsWith("model    data"),
                          AllOf(StartsWith("resnet8  synthetic"), HasSubstr("model.safetensors"))));
}

TEST_F(TrainedModelTest, PredictsTheLikeliestClasses) {
  const Ended ended = rondo({"predict", run(), in("grey.pgm"), in("red.ppm"), "--format", "json"});
  ASSERT_EQ(ended.status, 0) << ended.err;

  const json rows = json::parse(ended.out);
  ASSERT_THAT(rows, SizeIs(8));  // two images, four classes
  double sum = 0.0;
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rows[i]["image"], in("grey.pgm"));
    EXPECT_EQ(rows[i]["place"], i + 1);
    sum += rows[i]["probability"].get<double>();
    EXPECT_LE(rows[i]["logit"], rows[i > 0 ? i - 1 : 0]["logit"]);
  }
  EXPECT_NEAR(sum, 1.0, 1e-9);
  EXPECT_NEAR(std::log(rows[0]["probability"].get<double>() / rows[1]["probability"].get<double>()),
              rows[0]["logit"].get<double>() - rows[1]["logit"].get<double>(), 1e-9);
  EXPECT_EQ(rows[4]["image"], in("red.ppm"));
}

TEST_F(TrainedModelTest, PredictsAsManyClassesAsAskedFor) {
  const Ended table = rondo({"predict", run(), in("red.ppm"), "-k", "1"});
  const Ended csv = rondo({"predict", run(), in("red.ppm"), "--top", "2", "--format", "csv"});

  EXPECT_THAT(lines(table.out), ElementsAre(StartsWith("image"), StartsWith(in("red.ppm"))));
  ASSERT_THAT(lines(csv.out), SizeIs(3));
  EXPECT_EQ(lines(csv.out)[0], "image,place,class,probability,logit");
}

TEST_F(TrainedModelTest, ShowsNoControlCharactersOfANameOfAClass) {
  const std::string name = "\x1b]0;owned\x07";
  write("named.safetensors", edited_model([&](json& header, std::string&) {
          header["__metadata__"]["class_names"] = json({name, name, name, name}).dump();
        }));
  const auto predicted = [&](const char* format) {
    return rondo({"predict", config(), in("red.ppm"), "--weights", in("named.safetensors"), "-k",
                  "1", "--format", format});
  };

  const Ended table = predicted("table");
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, AllOf(HasSubstr("?]0;owned?"), testing::Not(HasSubstr("\x1b"))));
  EXPECT_EQ(json::parse(predicted("json").out)[0]["name"], name);
  EXPECT_THAT(predicted("csv").out, HasSubstr(name));
}

TEST_F(TrainedModelTest, ExportsTheModelOfARun) {
  const std::string out = in("exported.safetensors");

  const Ended ended = rondo({"export", run(), "-o", out});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(contents(out), contents(model()));

  const Ended again = rondo({"export", config(), "--weights", out, "-o", in("again.safetensors")});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(contents(in("again.safetensors")), contents(out));
}

// It was safetensors, whatever the name said.
TEST_F(TrainedModelTest, ExportsToNoEndingOfAnotherFormat) {
  for (const char* name : {"model.onnx", "model.pt", "model.pth"}) {
    expect_refused({"export", run(), "-o", in(name)}, 2,
                   "is no ending that rondo export knows; it writes .safetensors");
    EXPECT_FALSE(fs::exists(in(name)));
  }
}

TEST_F(TrainedModelTest, TakesNamesWithAPrefix) {
  write("torch.safetensors", edited_model([](json& header, std::string&) {
          json renamed;
          for (const auto& [name, entry] : header.items()) {
            if (name != "__metadata__") renamed["module." + name] = entry;
          }
          header = renamed;
        }));

  const Ended ended = rondo({"eval", config(), "--weights", in("torch.safetensors"), "--threads",
                             "1", "--format", "json"});

  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(json::parse(ended.out)["accuracy"], last_epoch()["accuracy"]);
  EXPECT_THAT(ended.err, HasSubstr("all names begin with \"module.\", which is left out"));
  const Ended trained =
      rondo({"train", config(), "--threads", "1", "-n", "1", "--out", in("begun"), "--set",
             "train.max_steps=1", "--set", "model.weights=" + in("torch.safetensors")});
  EXPECT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("all names begin with \"module.\", which is left out"));
}

// The file once replaced whatever stood there, and `.part` files stayed.
TEST_F(TrainedModelTest, WritesInThePlaceOfFilesAlone) {
  fs::create_directory(in("place"));
  ASSERT_EQ(::mkfifo(in("place/pipe").c_str(), 0600), 0);

  for (const char* command : {"export", "report"}) {
    expect_refused({command, run(), "-o", in("place")}, 2, "is a folder; give the name of a file");
    expect_refused({command, run(), "-o", in("place/pipe")}, 2, "give the name of a regular file");
  }

  EXPECT_TRUE(fs::is_fifo(in("place/pipe")));
  EXPECT_FALSE(fs::exists(in("place.part")));
  EXPECT_FALSE(fs::exists(in("place/pipe.part")));
}

TEST_F(TrainedModelTest, TakesTheModelOfACheckpoint) {
  const std::string newest = run() + "/checkpoints/step-4";
  for (const std::string& which :
       {std::string("newest"), std::string("best"), std::string("4"), newest}) {
    const std::string out = in("of-checkpoint.safetensors");

    const Ended ended = rondo({"export", run(), "--checkpoint", which, "-o", out});

    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(contents(out), contents(model())) << which;
  }
  const Words of_newest = {"--checkpoint", "newest"};
  const Words eval = {"eval", run(), "--threads", "1", "--format", "json"};
  const Words predict = {"predict", run(), in("red.ppm"), "--format", "json"};
  EXPECT_EQ(json::parse(rondo(joined(eval, of_newest)).out)["accuracy"], last_epoch()["accuracy"]);
  EXPECT_EQ(rondo(joined(predict, of_newest)).out, rondo(predict).out);
}

TEST_F(TrainedModelTest, RefusesCheckpointsThatCannotBeUsed) {
  const auto with = [&](const std::string& which) -> std::vector<std::string> {
    return {"export", run(), "-o", in("out"), "--checkpoint", which};
  };
  expect_refused(with("17"), 3, "has no checkpoint \"17\" (step-4); give newest, best,");
  expect_refused(with(in("absent")), 3, "has no checkpoint");
  expect_refused(with(run()), 3, "is the folder of a run, and no checkpoint; give ");
  expect_refused(joined(with("newest"), {"--weights", in("file")}), 2,
                 "--weights and --checkpoint name two models");
  expect_refused(joined(with("newest"), {"--set", "data.classes=5"}), 2,
                 "data.classes: it is 5, and was 4 when the run began");

  fs::copy(run(), in("damaged"), fs::copy_options::recursive);
  const fs::path checkpoint = fs::path(in("damaged")) / "checkpoints" / "step-4";
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    if (!entry.path().filename().string().starts_with("parameters")) continue;
    std::fstream(entry.path(), std::ios::in | std::ios::out | std::ios::binary).put('?');
  }
  expect_refused({"export", in("damaged"), "-o", in("out"), "--checkpoint", "newest"}, 3,
                 "does not fit its checksum; use another checkpoint");
}

// The model that the run had ended with was taken.
TEST_F(TrainedModelTest, RefusesEmptyNames) {
  for (const char* option : {"--checkpoint", "--weights"}) {
    expect_refused({"eval", run(), option, ""}, 2,
                   std::string(option) + ": is empty; give a value, or leave the option out");
  }
}

TEST_F(TrainedModelTest, InspectsAFile) {
  const std::string file = model();

  const Ended text = rondo({"inspect", file});
  const Ended csv = rondo({"inspect", file, "--format", "csv"});
  const Ended object = rondo({"inspect", file, "--format", "json"});

  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("\ninput       [8, 8, 3]\n"), HasSubstr("conv1.weight"),
                              HasSubstr("16x3x3x3"), HasSubstr(" elements, ")));
  EXPECT_THAT(lines(csv.out)[0],
              "name,type,shape,elements,bytes,norm,mean,min,max,not_finite,histogram");
  const json summary = json::parse(object.out);
  EXPECT_EQ(lines(csv.out).size(), summary["tensors"].size() + 1);
  EXPECT_EQ(summary["metadata"][0]["key"], "classes");
  EXPECT_EQ(summary["metadata"][0]["value"], "4");
  for (const json& tensor : summary["tensors"]) EXPECT_EQ(tensor["not_finite"], 0);
}

// Bytes of 0xff are NaN in fp32.
TEST_F(TrainedModelTest, ShowsNoStatisticsOfATensorThatHasNoFiniteValue) {
  const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  write("nan.safetensors", std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') +
                               header + std::string(8, '\xff'));

  const Ended text = rondo({"inspect", in("nan.safetensors")});
  const Ended object = rondo({"inspect", in("nan.safetensors"), "--format", "json"});

  EXPECT_THAT(text.out, testing::ContainsRegex("F32 +2 +2 +- +- +- +- +2 "));
  const json tensor = json::parse(object.out)["tensors"][0];
  for (const char* name : {"norm", "mean", "min", "max"}) EXPECT_TRUE(tensor[name].is_null());
  EXPECT_EQ(tensor["not_finite"], 2);
}

TEST_F(TrainedModelTest, JudgesNothingWithWeightsThatAreNotFinite) {
  const std::string file = in("broken-model.safetensors");
  write("broken-model.safetensors", without_checksum(with_values_of('\xff')));

  expect_refused_everywhere(file, file + ": the tensor \"bn1.bias\" contains NaN or Inf; give");
  EXPECT_EQ(rondo({"inspect", file}).status, 0);
}

TEST_F(TrainedModelTest, JudgesNothingWithWeightsThatAreDamaged) {
  const std::string file = in("damaged.safetensors");
  std::string damaged = contents(model());
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  write("damaged.safetensors", damaged);
  const std::string problem = file + ": its tensors are damaged: they do not fit";

  expect_refused_everywhere(file, problem);
  expect_refused({"inspect", file}, 3, problem);
  write("damaged.safetensors", without_checksum(damaged));
  EXPECT_EQ(rondo({"inspect", file}).status, 0);
}

// Bytes of 0x7e make numbers of 8e37, which times each other are none.
TEST_F(TrainedModelTest, JudgesNothingWithLogitsThatAreNotFinite) {
  const std::string file = in("large-model.safetensors");
  write("large-model.safetensors", without_checksum(with_values_of('\x7e')));

  expect_refused({"predict", config(), in("red.ppm"), "--weights", file}, 3,
                 in("red.ppm") + ": the model gives NaN or Inf for it");
  expect_refused({"eval", config(), "--weights", file, "-n", "2"}, 5,
                 "the model gives NaN or Inf for 40 of 40 test images");
}

// All were a manifest.json that is missing, or a broken image.
TEST_F(TrainedModelTest, SaysWhatAFolderIsInstead) {
  fs::create_directories(in("images"));

  expect_refused({"predict", run(), in("images")}, 2,
                 in("images") + ": is a folder; name the images in it, as in " + in("images/*"));
  expect_refused({"inspect", run()}, 3,
                 run() + ": is a folder; name the file in it, as in " + model());
  expect_refused({"eval", run(), "--weights", run()}, 3,
                 run() + ": is the folder of a run, and no checkpoint; give ");
  expect_refused({"eval", run(), "--checkpoint", run() + "/checkpoints"}, 3,
                 run() + "/checkpoints: is the folder of a run's checkpoints; give ");
}

TEST_F(TrainedModelTest, RefusesWhatIsNoRun) {
  fs::create_directories(in("empty"));
  fs::create_directories(in("unfinished"));
  fs::copy_file(config(), in("unfinished") + "/config.toml");
  fs::create_directories(in("lost"));
  write("lost/config.toml", "");

  for (const char* command : {"eval", "predict", "export"}) {
    const auto of = [&](const std::string& source) -> Words {
      if (command == std::string("predict")) return {command, source, in("red.ppm")};
      if (command == std::string("export")) return {command, source, "-o", in("out")};
      return {command, source};
    };
    expect_refused(of(in("empty")), 2, "holds no config.toml; give the directory of a run");
    expect_refused(of(in("model.safetensors")), 2, "is a file of weights; name a run or");
    expect_refused(of(in("unfinished")), 2, "holds no model.safetensors, which a run writes");
    expect_refused(of(in("lost")), 2,
                   "lost/config.toml: missing key 'model.name'; give the directory of a run");
    expect_refused(of(in("absent.toml")), 2, "absent.toml: the configuration cannot be read");
    expect_refused(of(config()), 2, "run.toml names no file of weights; give one with --weights");
  }
}

TEST_F(TrainedModelTest, RefusesBrokenFiles) {
  std::ofstream(in("broken.safetensors")) << "no such file";
  std::ofstream(in("broken.ppm")) << "P6 8 8 255\nshort";

  expect_refused({"inspect", in("broken.safetensors")}, 3, "says that its header has");
  expect_refused({"inspect", in("absent")}, 3, "absent: cannot be opened");
  expect_refused({"export", run(), "--weights", in("broken.safetensors"), "-o", in("out")}, 3,
                 "says that its header has");
  expect_refused({"predict", run(), in("broken.ppm")}, 3,
                 "announces 8 x 8 pixels in its header, which 16 bytes cannot hold");
  expect_refused({"predict", run(), in("absent.ppm")}, 3,
                 "absent.ppm: there is no such file; check its path");
  expect_refused({"eval", run(), "--threads", "1", "--set", "data.classes=5"}, 3,
                 "the tensor \"fc.weight\" is [4, 64], and the model's is [5, 64]");
  expect_refused({"export", run(), "-o", in("nowhere/out")}, 2, "cannot be written");
}

TEST_F(TrainedModelTest, ARunBeginsWithWeightsAndSkipsSome) {
  const auto with = [&](const std::string& folder, const std::string& skip) -> Words {
    return {"train",     config(),
            "--set",     "data.classes=5",
            "--set",     "model.weights=" + model(),
            "--threads", "1",
            "-n",        "1",
            "--set",     "model.skip=" + skip,
            "--out",     in(folder)};
  };

  expect_refused(with("refused", "[]"), 3, "or let rondo train draw the layer anew by model.skip");
  expect_refused(with("refused", "[\"fd.*\"]"), 2, "\"fd.*\" matches no parameter of the model");
  const Ended ended = rondo(with("skipped", "[\"fc.*\"]"));
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_TRUE(fs::exists(in("skipped") + "/model.safetensors"));
}

}  // namespace
}  // namespace rondo::test::trained_model_test
