// The manifest of a checkpoint as JSON.
//
// A manifest carries a checksum of all its other members. It is accepted only in the spelling in
// which it was written: what was read is written again, and has to be the same text. So a changed
// byte is always noticed, in a number as well as in a space, and a file that somebody has edited is
// refused rather than half understood. JSON is for people, who may want to know what a checkpoint
// is; the program reads nothing from it that it has not written.

#include "checkpoint/manifest.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weights/checksum.hpp"

namespace rondo::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr int format_version = 7;
constexpr int format_without_metrics_checksum = 6;  // these two of older programs
constexpr int format_without_images = 5;
constexpr const char* checksum_key = "xxh3";
constexpr const char* images_key = "images";
constexpr const char* metrics_checksum_key = "metrics_xxh3";
constexpr std::size_t largest_text = std::size_t{256} << 20U;

[[noreturn]] void refuse_manifest(const std::string& problem) {
  throw std::invalid_argument("the manifest " + problem);
}

int format_of(const Manifest& manifest) {
  if (!manifest.images) return format_without_images;
  return manifest.metrics_checksum.empty() ? format_without_metrics_checksum : format_version;
}

// Calls visit(name, member) for each member that is one value, in the order of the text.
template <typename AManifest, typename Visit>
void visit_members(AManifest& manifest, const Visit& visit) {
  visit("program", manifest.program);
  visit("step", manifest.step);
  visit("epoch", manifest.epoch);
  visit("ranks", manifest.ranks);
  visit("threads", manifest.threads);
  visit("replicas", manifest.replicas);
  visit("nodes", manifest.nodes);
  visit("lazy_convolutions", manifest.lazy_convolutions);
  visit("training_samples", manifest.training_samples);
  visit("training_data", manifest.training_data);
  visit("test_data", manifest.test_data);
  visit("mean", manifest.mean);
  visit("stddev", manifest.stddev);
  visit("class_names", manifest.class_names);
  visit("layers", manifest.layers);
  visit("accuracy", manifest.accuracy);
  visit("metrics_bytes", manifest.metrics_bytes);
  visit("token_trace_bytes", manifest.token_trace_bytes);
  visit("config", manifest.config);
}

template <class T>
Json as_json(const T& member) {
  return member;
}
Json as_json(const std::optional<double>& member) { return member ? Json(*member) : Json(nullptr); }

// All members but the checksum. The order is fixed, because the text is compared.
Json body_of(const Manifest& manifest) {
  Json files = Json::array();
  for (const CheckpointFile& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3", file.checksum}});
  }
  Json ranks = Json::array();
  for (const auto& parts : manifest.parts) {
    // A rank names the file of each of its parts; ranks whose parts are equal name the same file.
    Json names = Json::object();
    for (std::size_t part = 0; part < part_count; ++part) {
      names[std::string(part_names[part])] = manifest.files[parts[part]].name;
    }
    ranks.push_back(std::move(names));
  }
  Json body = {{"format", format_of(manifest)}};
  visit_members(manifest,
                [&](const char* name, const auto& member) { body[name] = as_json(member); });
  body["files"] = std::move(files);
  body["parts"] = std::move(ranks);
  if (manifest.images) {
    body[images_key] = {{"name", manifest.images->name},
                        {"hwc", manifest.images->hwc},
                        {"classes", manifest.images->classes}};
  }
  if (format_of(manifest) == format_version) {
    body[metrics_checksum_key] = manifest.metrics_checksum;
  }
  return body;
}

std::string text_of(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// A file is named by us: of letters, digits and "-.", so that it lies in the checkpoint's folder.
bool is_plain(const std::string& name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  };
  return !name.empty() && name.front() != '.' && std::ranges::all_of(name, allowed);
}

// The library would convert a number with a fraction or an exponent, whether it fits or not. One
// that is too large for T is found out when the text is compared.
template <class T>
T integer_of(const Json& object, const char* key) {
  const Json& number = object.at(key);
  if (!number.is_number_integer()) refuse_manifest(fmt::format("has a {} that is no integer", key));
  return number.get<T>();
}

template <class T>
void read_member(const Json& body, const char* name, T& member) {
  if constexpr (std::is_integral_v<T>) {
    member = integer_of<T>(body, name);
  } else {
    member = body.at(name).get<T>();
  }
}

void read_member(const Json& body, const char* name, std::optional<double>& member) {
  const Json& number = body.at(name);
  if (!number.is_null()) member = number.get<double>();
}

std::vector<CheckpointFile> files_of(const Json& body) {
  std::vector<CheckpointFile> files;
  std::set<std::string> names;
  for (const Json& entry : body.at("files")) {
    files.push_back({.name = entry.at("name").get<std::string>(),
                     .bytes = integer_of<std::uint64_t>(entry, "bytes"),
                     .checksum = entry.at("xxh3").get<std::string>()});
    const std::string& name = files.back().name;
    if (!is_plain(name) || !names.insert(name).second) {
      refuse_manifest("names a file that it cannot have: \"" + name + "\"");
    }
  }
  return files;
}

// A part can only be in a file whose checksum is known.
std::size_t index_of(const std::vector<CheckpointFile>& files, const std::string& name) {
  const auto found = std::ranges::find(files, name, &CheckpointFile::name);
  if (found == files.end()) refuse_manifest("has no checksum of the file \"" + name + "\"");
  return static_cast<std::size_t>(found - files.begin());
}

// The pixels of an image can be counted, and each channel is normalised.
bool is_possible(const DescribedImages& images, const Manifest& manifest) {
  constexpr std::int64_t most = std::int64_t{1} << 31;
  std::int64_t pixels = 1;
  for (const std::int64_t extent : images.hwc) {
    if (extent < 1 || extent > most / pixels) return false;
    pixels *= extent;
  }
  const auto channels = static_cast<std::size_t>(images.hwc.back());
  const auto is_deviation = [](float value) { return std::isfinite(value) && value > 0.0F; };
  return images.classes >= 1 && images.classes <= most && manifest.mean.size() == channels &&
         manifest.stddev.size() == channels &&
         std::ranges::all_of(manifest.mean, [](float value) { return std::isfinite(value); }) &&
         std::ranges::all_of(manifest.stddev, is_deviation);
}

// The checksum proves that nothing has changed since it was written, not that the numbers make
// sense.
void check(const Manifest& manifest) {
  if (manifest.ranks < 1 || manifest.replicas < 1 || manifest.ranks % manifest.replicas != 0 ||
      manifest.parts.size() != static_cast<std::size_t>(manifest.ranks)) {
    refuse_manifest(fmt::format("is of {} ranks in {} replicas, and lists {}", manifest.ranks,
                                manifest.replicas, manifest.parts.size()));
  }
  if (manifest.step < 0 || manifest.epoch < 0) refuse_manifest("is of a step that cannot be");
  if (manifest.images && !is_possible(*manifest.images, manifest)) {
    refuse_manifest("is of images that cannot be");
  }
}

DescribedImages images_of(const Json& images) {
  DescribedImages described{.name = images.at("name").get<std::string>(),
                            .classes = integer_of<std::int64_t>(images, "classes")};
  const Json& extents = images.at("hwc");
  if (extents.size() != described.hwc.size()) refuse_manifest("is of images that cannot be");
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (!extents[i].is_number_integer()) refuse_manifest("has an extent that is no integer");
    described.hwc[i] = extents[i].get<std::int64_t>();
  }
  return described;
}

Manifest manifest_of(const Json& body) {
  // The format is looked at first: a newer one may have other members.
  const auto version = integer_of<int>(body, "format");
  if (version < format_without_images || version > format_version) {
    refuse_manifest(fmt::format("has the format {}, and this program reads {} to {}", version,
                                format_without_images, format_version));
  }
  Manifest manifest{.files = files_of(body)};
  visit_members(manifest, [&](const char* name, auto& member) { read_member(body, name, member); });
  if (version > format_without_images) manifest.images = images_of(body.at(images_key));
  if (version == format_version) {
    manifest.metrics_checksum = body.at(metrics_checksum_key).get<std::string>();
  }
  for (const Json& names : body.at("parts")) {
    auto& parts = manifest.parts.emplace_back();
    for (std::size_t part = 0; part < part_count; ++part) {
      parts[part] =
          index_of(manifest.files, names.at(std::string(part_names[part])).get<std::string>());
    }
  }
  check(manifest);
  return manifest;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  Json body = body_of(manifest);
  const std::string text = text_of(body);
  body[checksum_key] = checksum_of(std::as_bytes(std::span(text)));
  return text_of(body);
}

Manifest parse_manifest(std::string_view text) {
  // A manifest has some lines for each rank. What is longer than this is none.
  if (text.size() > largest_text) refuse_manifest("is too long");
  Json body = Json::parse(text, nullptr, false);
  if (!body.is_object()) refuse_manifest("is no JSON object");
  try {
    const Manifest manifest = manifest_of(body);
    // Compares all bytes, those of the checksum among them.
    if (to_json(manifest) != text) refuse_manifest("does not fit its checksum");
    return manifest;
  } catch (const Json::exception&) {
    refuse_manifest("lacks something, or has it in another form");
  }
}

}  // namespace rondo::train
