// `rondo export` and `rondo inspect`: files with the weights of a model.
//
// `export` leaves the work to the library, which reads every tensor against the model and writes
// the one form that such a file has. `inspect` shows any safetensors file, also of another program,
// so nothing of it goes to a terminal as it is.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <rondo/train/weights.hpp>

#include "command.hpp"
#include "failure.hpp"
#include "files.hpp"
#include "options.hpp"
#include "table.hpp"
#include "train/trained.hpp"

namespace rondo::tools {
namespace {

struct ExportRequest {
  TrainedRequest trained = {};
  std::filesystem::path file = {};
};

// A run's model is in that form already; a checkpoint's parts, or another program's file, are
// brought into it.
int run_export(const ExportRequest& request) {
  expect_output(request.file);  // said before anything is read
  const std::string ending = request.file.extension().string();
  if (!ending.empty() && ending != ".safetensors") {
    throw UsageError(fmt::format(
        "{}: {} is no ending that rondo export knows; it writes .safetensors (or a name without an "
        "ending)",
        request.file.string(), ending));
  }
  const Trained trained = find_trained(request.trained);
  tell_of_weights(trained);
  train::export_weights(trained.experiment, trained.weights, request.file);
  return exit_done;
}

struct InspectRequest {
  std::filesystem::path file = {};
  Format format = Format::text;
};

// A character for each part of the histogram, the darker the more values; a blank where none is.
std::string shades_of(std::span<const std::uint64_t> counts) {
  constexpr std::string_view shades = ".:-=+*#%@";
  const std::uint64_t most = std::max<std::uint64_t>(std::ranges::max(counts), 1);
  std::string text = "|";
  for (const std::uint64_t count : counts) {
    // Relative to the fullest part: the shape of a distribution matters, not its size.
    const auto shade = static_cast<std::size_t>(static_cast<double>(count) /
                                                static_cast<double>(most) * (shades.size() - 1));
    text += count == 0 ? ' ' : shades[shade];
  }
  return text + "|";
}

// The columns. A heading alone is for people, a name alone for programs, both are for both: see
// TableOf.

using Statistics = train::TensorStatistics;
using Summary = train::TensorSummary;

// A statistic of a tensor that has some. A tensor without a finite value has no norm, and no mean.
template <class Get>
auto statistic(Get get) {
  using Value = std::decay_t<decltype(std::invoke(get, Statistics{}))>;
  return [get](const Summary& tensor) -> std::optional<Value> {
    if (!tensor.statistics) return std::nullopt;
    const Value value = std::invoke(get, *tensor.statistics);
    if constexpr (std::is_floating_point_v<Value>) {
      if (std::isnan(value)) return std::nullopt;
    }
    return value;
  };
}

// One row for each tensor. Statistics are left out for types that are no floats.
Table tensors_of(const train::WeightsSummary& summary) {
  return TableOf(summary.tensors)
      // Programs get the name as it is, people one that is safe to print.
      .add({.name = "name"}, &Summary::name)
      .add({.heading = "tensor", .align = Align::left},
           [](const Summary& tensor) { return printable(tensor.name); })
      .add({"type", "type", Align::left}, &Summary::type)
      .add({"shape", "shape", Align::left},
           [](const Summary& tensor) { return fmt::format("{}", fmt::join(tensor.shape, "x")); })
      .add({"elements", "elements"}, &Summary::elements)
      .add({.name = "bytes"}, &Summary::bytes)
      .add({.name = "norm", .heading = "norm", .decimals = 4}, statistic(&Statistics::norm))
      .add({.name = "mean", .heading = "mean", .decimals = 4}, statistic(&Statistics::mean))
      .add({.name = "min", .heading = "min", .decimals = 4}, statistic(&Statistics::min))
      .add({.name = "max", .heading = "max", .decimals = 4}, statistic(&Statistics::max))
      .add({"not_finite", "NaN, Inf"}, statistic(&Statistics::not_finite))
      .add({.name = "histogram"}, statistic([](const Statistics& statistics) {
             return fmt::format("{}", fmt::join(statistics.histogram, " "));
           }))
      .add({.heading = "histogram", .align = Align::left},
           statistic([](const Statistics& statistics) { return shades_of(statistics.histogram); }));
}

using Entry = std::pair<std::string, std::string>;

// Keys and values are texts of whoever wrote the file.
Table metadata_of(const train::WeightsSummary& summary) {
  const std::vector<Entry> entries(summary.metadata.begin(), summary.metadata.end());
  return TableOf(entries)
      .add({.name = "key"}, &Entry::first)
      .add({.name = "value"}, &Entry::second)
      .add({.heading = "metadata", .align = Align::left},
           [](const Entry& entry) { return printable(entry.first); })
      .add({.heading = "value", .align = Align::left},
           [](const Entry& entry) { return printable(entry.second); });
}

// The same tables, as members of one object.
std::string as_json(const train::WeightsSummary& summary) {
  return TableOf(std::span(&summary, 1))
      .add({.name = "metadata"}, metadata_of)
      .add({.name = "tensors"}, tensors_of)
      .json_object();
}

// With the elements and bytes of all tensors.
std::string as_text(const train::WeightsSummary& summary) {
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
  for (const Summary& tensor : summary.tensors) {
    elements += tensor.elements;
    bytes += tensor.bytes;
  }
  const std::string metadata = summary.metadata.empty() ? "" : metadata_of(summary).text() + "\n";
  return fmt::format("{}{}{} tensors, {} elements, {} bytes\n", metadata,
                     tensors_of(summary).text(), summary.tensors.size(), elements, bytes);
}

int run_inspect(const InspectRequest& request) {
  const train::WeightsSummary summary = train::summarize_weights(request.file);
  // In CSV the tensors alone: metadata are no rows of the same table.
  fmt::print("{}", request.format == Format::json  ? as_json(summary)
                   : request.format == Format::csv ? tensors_of(summary).csv()
                                                   : as_text(summary));
  return exit_done;
}

}  // namespace

void add_export(Command& root) {
  Command command = root.add("export", "Write the model of a run to a file for other programs");
  auto request = std::make_shared<ExportRequest>();
  add_trained_options(command, request->trained);
  command.option("-o,--out FILE", request->file, "The file to write").required();
  command.footer(
      "The file is in the safetensors format, with torchvision's names. Its metadata say the "
      "model,\n"
      "the shape of its images, the classes, and the mean and deviation that images are normalised "
      "with.");
  command.does([request](const CommandLine& /*line*/) { return run_export(*request); });
}

void add_inspect(Command& root) {
  Command command = root.add("inspect", "Show what a file of weights holds");
  auto request = std::make_shared<InspectRequest>();
  command.option("file FILE", request->file, "A safetensors file").required();
  add_format_option(command, request->format, table_csv_or_json, "table, csv, or json: one object");
  command.does([request](const CommandLine& /*line*/) { return run_inspect(*request); });
}

}  // namespace rondo::tools
