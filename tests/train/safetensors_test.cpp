// The safetensors format: bytes worked out by hand, and files that break one of its rules each.

#include <sys/stat.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/weights.hpp>

#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"
#include "weights/safetensors.hpp"

namespace rondo::train::safetensors_test {
namespace {

using rondo::test::error_text;
using testing::ElementsAre;
using testing::HasSubstr;

std::string file_of(std::string header, const std::string& values) {
  header.append((8 - header.size() % 8) % 8, ' ');
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + values;
}

std::string bytes_of(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

class SafetensorsTest : public testing::Test {
 protected:
  std::filesystem::path path() const { return folder_.path() / "model.safetensors"; }

  void put(const std::string& bytes) const { std::ofstream(path(), std::ios::binary) << bytes; }

  std::string refused(const std::string& bytes) const {
    put(bytes);
    return error_text<DataError>([this] { SafetensorsFile{path()}; });
  }

  rondo::test::ScratchFolder folder_;
};

// As the format's own library writes it: metadata first, then tensors by name, padded with spaces.
TEST_F(SafetensorsTest, WritesTheBytesThatTheFormatAsksFor) {
  const std::vector<float> weight = {1, 2, 3, 4, 5, 6};
  const std::vector<float> bias = {7, 8};

  write_safetensors(path(), {{"fc.weight", {2, 3}, weight}, {"fc.bias", {2}, bias}},
                    {{"format", "pt"}});

  EXPECT_EQ(rondo::test::contents(path()),
            file_of(R"({"__metadata__":{"format":"pt"},)"
                    R"("fc.bias":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                    R"("fc.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]}})",
                    bytes_of({7, 8, 1, 2, 3, 4, 5, 6})));
  EXPECT_FALSE(std::filesystem::exists(path().string() + ".part"));
}

TEST_F(SafetensorsTest, ReadsWhatItWrites) {
  const std::vector<float> weight = {1, 2, 3, 4, 5, 6};
  write_safetensors(path(), {{"weight", {2, 3}, weight}, {"none", {0, 4}, {}}}, {{"a", "b"}});

  const SafetensorsFile file(path());

  EXPECT_THAT(file.metadata(), ElementsAre(testing::Pair("a", "b")));
  ASSERT_NE(file.find("weight"), nullptr);
  EXPECT_THAT(file.find("weight")->shape, ElementsAre(2, 3));
  std::vector<float> read(6);
  file.read(*file.find("weight"), read);
  EXPECT_EQ(read, weight);
  EXPECT_EQ(file.find("none")->elements(), 0U);
  EXPECT_EQ(file.find("other"), nullptr);
}

TEST_F(SafetensorsTest, ConvertsOtherTypesOfFloats) {
  // 1.5, -2, the least subnormal half; as halves, as bf16 (which has none so small), as doubles.
  put(file_of(R"({"half":{"dtype":"F16","shape":[3],"data_offsets":[0,6]},)"
              R"("brain":{"dtype":"BF16","shape":[2],"data_offsets":[6,10]},)"
              R"("double":{"dtype":"F64","shape":[1],"data_offsets":[10,18]}})",
              std::string("\x00\x3e\x00\xc0\x01\x00\xc0\x3f\x00\xc0", 10) +
                  std::string("\0\0\0\0\0\0\xf8\x3f", 8)));
  const SafetensorsFile file(path());
  std::vector<float> half(3);
  std::vector<float> brain(2);
  std::vector<float> number(1);

  file.read(*file.find("half"), half);
  file.read(*file.find("brain"), brain);
  file.read(*file.find("double"), number);

  EXPECT_THAT(half, ElementsAre(1.5F, -2.0F, 0x1p-24F));
  EXPECT_THAT(brain, ElementsAre(1.5F, -2.0F));
  EXPECT_THAT(number, ElementsAre(1.5F));
}

TEST_F(SafetensorsTest, RefusesIntegersWhereFloatsAreNeeded) {
  put(file_of(R"({"count":{"dtype":"I64","shape":[],"data_offsets":[0,8]}})",
              std::string(8, '\1')));
  const SafetensorsFile file(path());
  std::vector<float> out(1);
  EXPECT_THAT(error_text<DataError>([&] { file.read(*file.find("count"), out); }),
              HasSubstr("the tensor \"count\" has the type I64"));
}

TEST_F(SafetensorsTest, RefusesWhatBreaksARule) {
  const std::string four = bytes_of({1});
  // A file of one tensor with the values of `values`.
  const auto one = [](const std::string& dtype, const std::string& shape,
                      const std::string& offsets, const std::string& values) {
    return file_of(R"({"w":{"dtype":")" + dtype + R"(","shape":[)" + shape +
                       R"(],"data_offsets":[)" + offsets + "]}}",
                   values);
  };
  const std::string tensor = R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::vector<std::pair<std::string, const char*>> broken = {
      {"short", "is shorter than the length of its header"},
      {std::string(8, '\x7f'), "says that its header has"},
      {file_of("[]", ""), "no JSON object"},
      {file_of("{", ""), "no JSON object"},
      {file_of(R"({"w":3})", four), "the tensor \"w\" without dtype"},
      {one("F8", "1", "0,4", four), "has the unknown type F8;"},
      {one("F32", "1e46", "0,4", four), "with a shape that is no integer"},
      {one("F32", "1", "0,4.5", four), "with a data_offsets that is no integer"},
      {one("F32", "1", "0,4,9", four), "with 3 data_offsets, and not two"},
      {file_of("{" + tensor + "," + tensor + "}", four), "describes a tensor twice"},
      {file_of(R"({"__metadata__":{"a":1}})", ""), "has __metadata__ that are not all texts"},
      {one("F32", "2", "0,4", four), "has 4 bytes, which its shape does not give"},
      {one("F32", "-1", "0,4", four), "which its shape does not give"},
      {one("F32", "4611686018427387904,4", "0,0", ""), "which its shape does not give"},
      {one("F32", "1", "0,8", four), "lies at bytes 0 to 8 of 4"},
      {one("F32", "1", "4,8", four + four), "begins at byte 4 and not at 0"},
      {one("F32", "1", "0,4", four + four), "has 4 bytes of no tensor"}};
  for (const auto& [bytes, said] : broken) EXPECT_THAT(refused(bytes), HasSubstr(said));
}

TEST_F(SafetensorsTest, CallsWhatPeopleHaveInsteadByItsName) {
  const std::string rest(64, 'x');
  EXPECT_THAT(refused("PK\x03\x04" + rest),
              HasSubstr("is a zip file, as torch.save writes it; load it in Python"));
  EXPECT_THAT(refused("\x80\x02}q" + rest), HasSubstr("is a pickle"));
  EXPECT_THAT(refused("version https://git-lfs.github.com/spec/v1\noid sha256:" + rest),
              HasSubstr("is a pointer of Git LFS and not the file itself; fetch the file by git"));
  for (const char* page : {"<!DOCTYPE html>", "\n\n\n  <html>"}) {
    EXPECT_THAT(refused(page + rest), HasSubstr("is an HTML or XML page; download the file"));
  }
}

// It was opened as a file, and waited for a writer.
TEST_F(SafetensorsTest, DoesNotWaitForAPipe) {
  const std::filesystem::path pipe = folder_.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);

  EXPECT_THAT(error_text<DataError>([&] { SafetensorsFile{pipe}; }),
              HasSubstr("is empty, or not a file"));
}

TEST_F(SafetensorsTest, NamesMayHoldWhatJsonIsMadeOf) {
  put(file_of(R"({"a\":{[\\":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", bytes_of({1})));

  EXPECT_EQ(SafetensorsFile(path()).entries().front().name, R"(a":{[\)");
}

// 3, 4 and NaN; a count, which is no float; nothing finite at all.
TEST_F(SafetensorsTest, SummarizesEveryTensor) {
  put(file_of(R"({"__metadata__":{"format":"pt"},)"
              R"("w":{"dtype":"F32","shape":[3,1],"data_offsets":[0,12]},)"
              R"("count":{"dtype":"I64","shape":[],"data_offsets":[12,20]},)"
              R"("inf":{"dtype":"F16","shape":[1],"data_offsets":[20,22]},)"
              R"("small":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[22,24]}})",
              bytes_of({3, std::numeric_limits<float>::quiet_NaN(), 4}) + std::string(8, '\1') +
                  std::string("\x00\x7c", 2) + "ab"));

  const WeightsSummary summary = summarize_weights(path());

  EXPECT_THAT(summary.metadata, ElementsAre(testing::Pair("format", "pt")));
  ASSERT_EQ(summary.tensors.size(), 4U);
  const TensorSummary& w = summary.tensors[0];
  EXPECT_EQ(w.name, "w");
  EXPECT_THAT(w.shape, ElementsAre(3, 1));
  EXPECT_EQ(w.bytes, 12U);
  ASSERT_TRUE(w.statistics.has_value());
  EXPECT_EQ(w.statistics->norm, 5.0);
  EXPECT_EQ(w.statistics->mean, 3.5);
  EXPECT_EQ(w.statistics->min, 3.0);
  EXPECT_EQ(w.statistics->max, 4.0);
  EXPECT_EQ(w.statistics->not_finite, 1U);
  EXPECT_EQ(w.statistics->histogram.front(), 1U);
  EXPECT_EQ(w.statistics->histogram.back(), 1U);
  EXPECT_EQ(summary.tensors[1].elements, 1U);
  EXPECT_FALSE(summary.tensors[1].statistics.has_value());
  EXPECT_EQ(summary.tensors[2].statistics.value().not_finite, 1U);
  EXPECT_THAT(summary.tensors[2].statistics->histogram, testing::Each(0U));
  for (const double value :
       {summary.tensors[2].statistics->norm, summary.tensors[2].statistics->mean,
        summary.tensors[2].statistics->min, summary.tensors[2].statistics->max}) {
    EXPECT_TRUE(std::isnan(value));
  }
  EXPECT_FALSE(summary.tensors[3].statistics.has_value());
}

TEST_F(SafetensorsTest, NamesAFileThatItCannotReadOrWrite) {
  const std::filesystem::path nowhere = folder_.path() / "nowhere" / "model.safetensors";
  EXPECT_THAT(error_text<DataError>([&] { SafetensorsFile{nowhere}; }),
              HasSubstr(nowhere.string() + ": cannot be opened"));
  EXPECT_THAT(
      error_text<DataError>([&] { write_safetensors(nowhere, {}, {}); }),
      HasSubstr("nowhere/model.safetensors: cannot be written, because there is no folder "));
}

}  // namespace
}  // namespace rondo::train::safetensors_test
