// Options that several commands share, each declared once, and the one grammar of sizes.
//
// A command that declared such an option by itself would soon mean something else by it. What is
// wrong with a value is found while the command line is parsed, before anything is started.

#include "options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>

#include <rondo/transport/links.hpp>
#include <rondo/transport/world.hpp>

#include "failure.hpp"

namespace rondo::tools {
namespace {

const Choices<Binding> bindings = {{"auto", Binding::automatic}, {"none", Binding::none}};

// A bench of more than a TiB is a mistake.
constexpr std::size_t largest_bench = std::size_t{1} << 40U;

[[noreturn]] void refuse_size(std::string_view text, std::string_view why) {
  throw UsageError(
      fmt::format("the size '{}' {}; write bytes as 4, 64K, 64KB or 64KiB (also M, G, T, P, E), "
                  "and ranges as 4:64M",
                  text, why));
}

// The power of 1024 that a suffix stands for; -1 when there is no such suffix.
int power_of(std::string_view suffix) {
  std::string unit(suffix);
  std::ranges::transform(unit, unit.begin(), [](unsigned char c) { return std::tolower(c); });
  if (unit.empty() || unit == "b") return 0;
  const std::size_t power = std::string_view("kmgtpe").find(unit.front());
  const std::string rest = unit.substr(1);
  // K, KB, Ki and KiB are all 1024 bytes: nobody means 1000 where memory is counted.
  const bool known = rest.empty() || rest == "b" || rest == "i" || rest == "ib";
  return known && power != std::string_view::npos ? static_cast<int>(power) + 1 : -1;
}

// A size of a bench: whole elements, at least one.
std::size_t parse_bench_size(std::string_view text, std::size_t element_bytes) {
  const std::uint64_t bytes = parse_bytes(text);
  if (bytes == 0 || bytes > largest_bench) refuse_size(text, "is out of range");
  if (bytes % element_bytes != 0) {
    refuse_size(text, fmt::format("is not a multiple of {}", element_bytes));
  }
  return bytes;
}

}  // namespace

// The formats that commands offer. Output for people is the same Format::text everywhere; it is
// called a table where it is one.
const Choices<Format> text_or_json = {{"text", Format::text}, {"json", Format::json}};
const Choices<Format> table_or_json = {{"table", Format::text}, {"json", Format::json}};
const Choices<Format> table_csv_or_json = {
    {"table", Format::text}, {"csv", Format::csv}, {"json", Format::json}};

Option add_format_option(Command& command, Format& format, const Choices<Format>& formats,
                         const std::string& text) {
  return command.choice("--format FORMAT", format, formats, text);
}

// Every command that reads a configuration takes it as its first argument, with --set as often as
// wanted.
void add_experiment_options(Command& command, std::filesystem::path& config,
                            std::vector<std::string>& settings, const std::string& about_config,
                            const std::string& about_settings) {
  command.option("config CONFIG.toml", config, "The experiment's TOML file" + about_config)
      .required();
  command
      .option("--set SECTION.KEY=VALUE", settings,
              "Overrides a key of the file" + about_settings + "; may be repeated")
      .repeatable();
}

// Where ranks run. 0 means that nothing was said, and the machine decides.
void add_placement_options(Command& command, PlacementRequest& request, const std::string& ranks) {
  command.option("-n,--ranks N", request.ranks, "Ranks to start (default: " + ranks + ")")
      .range(1, 4096);
  command
      .option("-t,--threads T", request.threads,
              "Threads of each rank (default: its share of the cores)")
      .range(1, 4096);
  command.choice("--bind HOW", request.binding, bindings,
                 "Give each rank cores of its own: auto, none");
  command.flag("--oversubscribe", request.oversubscribe, "Allow more threads than there are cores");
}

// All optional: what is not given is left to the environment or the configuration.
void add_fabric_options(Command& command, FabricRequest& request) {
  command
      .option("--fake-nodes K", request.fake_nodes,
              "Let the ranks count as K nodes, joined by loopback")
      .range(1, 4096);
  command
      .option("--fabric NAME", request.fabric,
              "What joins nodes: auto, tcp, ucx[:TRANSPORTS], ofi[:PROVIDER], shm")
      .check(transport::problem_of_fabric_name)
      .with_default(transport::FabricOptions{}.name);
  command.option("--interface LIST", request.interface,
                 "Network interfaces by preference, as in ib0,eth*,^docker0,10.0.0.0/8");
  command
      .option("--latency-us X", request.latency_us,
              "Inject so much latency into messages between nodes")
      .range(0.0, 1e7);
  command
      .option("--bandwidth-gbs X", request.bandwidth_gbs,
              "Slow the links between nodes to so many 1e9 bytes per second")
      .range(1e-6, 1e6);
}

// `otherwise` says where the command leaves them when nothing was said.
void add_flight_record_option(Command& command, std::filesystem::path& folder,
                              const std::string& otherwise) {
  command.option("--flight-record DIR", folder,
                 "Where the ranks' last operations are written when the job fails (default: " +
                     otherwise + ")");
}

// A number and a unit, without a sign, a point or blanks between.
std::uint64_t parse_bytes(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto digits = static_cast<std::size_t>(end - text.data());
  const int power = power_of(text.substr(digits));
  if (digits == 0 || power < 0) refuse_size(text, "is not a number of bytes");
  // The number may fit where number times unit does not.
  const std::uint64_t unit = std::uint64_t{1} << (10 * static_cast<unsigned>(power));
  if (error != std::errc{} || number > std::numeric_limits<std::uint64_t>::max() / unit) {
    refuse_size(text, "is out of range");
  }
  return number * unit;
}

// Steps of four: fine enough to see where protocols change.
std::vector<std::size_t> byte_sizes(std::string_view range, std::size_t element_bytes) {
  const std::size_t colon = range.find(':');
  const std::size_t first = parse_bench_size(range.substr(0, colon), element_bytes);
  const std::size_t last = colon == std::string_view::npos
                               ? first
                               : parse_bench_size(range.substr(colon + 1), element_bytes);
  if (last < first) refuse_size(range, "ends before it begins");
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = first; bytes <= last; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

}  // namespace rondo::tools
