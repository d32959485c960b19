// `rondo info`: versions, what this machine has, and what other commands choose by default.
//
// All facts are collected as one JSON object; text is made of it, so the two cannot disagree.

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include <rondo/tensor/data_type.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/transport/links.hpp>

#include "failure.hpp"
#include "machine.hpp"
#include "options.hpp"

namespace rondo::tools {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Cores and caches that this process may use; of the memory both numbers, because they differ where
// a container has a part of the machine.
OrderedJson describe_machine(const Machine& machine) {
  std::size_t hardware_threads = 0;
  for (const Core& core : machine.cores) hardware_threads += core.cpus.size();
  OrderedJson caches = OrderedJson::array();
  for (const Cache& cache : machine.caches) {
    caches.push_back({{"level", cache.level}, {"bytes", cache.bytes}, {"count", cache.count}});
  }
  return {{"processor", machine.processor},
          {"instruction_set", tensor::instruction_set()},
          {"bf16", tensor::computes_bf16()},
          {"cores", machine.cores.size()},
          {"hardware_threads", hardware_threads},
          {"cpu_quota", machine.quota ? OrderedJson(machine.quota->cpus) : OrderedJson(nullptr)},
          {"numa_domains", machine.numa_domains},
          {"caches", caches},
          {"memory_bytes", machine.memory_bytes},
          {"numa_memory_bytes", machine.numa_memory_bytes}};
}

// Pools that the administrator has filled, and whether shared memory gets huge pages by itself.
OrderedJson describe_huge_pages() {
  OrderedJson pools = OrderedJson::array();
  for (const HugePagePool& pool : huge_page_pools()) {
    pools.push_back({{"bytes", pool.page_bytes}, {"total", pool.total}, {"free", pool.free}});
  }
  return {{"pools", pools}, {"transparent_for_shared_memory", transparent_shared_pages()}};
}

// Ways between ranks: shared memory, and the plug-ins with their providers. Plug-ins are loaded to
// ask them; why one cannot be used is a fact, too.
OrderedJson describe_links() {
  OrderedJson links = OrderedJson::array();
  for (const transport::LinkFacts& link : transport::links()) {
    links.push_back({{"name", link.name},
                     {"usable", link.problem.empty()},
                     {"path", link.path},
                     {"problem", link.problem},
                     {"facts", link.facts}});
  }
  return links;
}

// Networks that could join this host with others. A World takes the best that all its nodes have.
OrderedJson describe_networks() {
  OrderedJson networks = OrderedJson::array();
  for (const transport::NetworkFacts& network : transport::networks()) {
    networks.push_back({{"kind", network.kind},
                        {"device", network.device},
                        {"network", network.network},
                        {"address", network.address},
                        {"megabits", network.megabits},
                        {"problem", network.problem}});
  }
  return networks;
}

// The data sets that are found without being given a path.
OrderedJson find_data_sets() {
  OrderedJson found = OrderedJson::array();
  const std::filesystem::path folder = "/usr/share/datasets/fashion-mnist";
  if (std::filesystem::exists(folder / "train-images-idx3-ubyte.gz")) {
    found.push_back({{"name", "fashion-mnist"}, {"path", folder.string()}});
  }
  found.push_back({{"name", "synthetic"}, {"path", nullptr}});
  return found;
}

// In the order in which text shows them; ordered_json keeps it.
OrderedJson collect() {
  const Machine machine = read_machine();
  // The placement that `rondo run` would choose without options. The same function that places
  // ranks, so that the answer is not another one.
  const Placement placement = place(machine, {});
  OrderedJson facts = {
      {"rondo", RONDO_VERSION}, {"onednn", tensor::onednn_version()}, {"compiler", RONDO_COMPILER}};
  facts.update(describe_machine(machine));
  facts["default_ranks"] = placement.ranks();
  facts["default_threads"] = placement.threads;
  facts["links"] = describe_links();
  facts["networks"] = describe_networks();
  facts["huge_pages"] = describe_huge_pages();
  facts["data_sets"] = find_data_sets();
  return facts;
}

// Caches may be smaller than a MiB.
std::string mebibytes(const OrderedJson& bytes) {
  const auto value = bytes.get<std::uint64_t>();
  if (value < (std::uint64_t{1} << 20U)) return fmt::format("{} KiB", value >> 10U);
  return fmt::format("{} MiB", value >> 20U);
}

// Text, made of the JSON object.

// A string without its quotes; everything else as JSON writes it.
std::string text_of(const OrderedJson& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Values begin in one column, behind the longest name.
void print_line(const std::string& name, const std::string& value) {
  fmt::print("{:<16}{}\n", name, value);
}

// "4 x L2 512 KiB, 1 x L3 32 MiB"
std::string caches_text(const OrderedJson& caches) {
  std::vector<std::string> parts;
  for (const OrderedJson& cache : caches) {
    parts.push_back(fmt::format("{} x L{} {}", text_of(cache["count"]), text_of(cache["level"]),
                                mebibytes(cache["bytes"])));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// "512 of 1024 free (2 MiB), for shared memory: advise"
std::string huge_pages_text(const OrderedJson& pages) {
  std::vector<std::string> parts;
  for (const OrderedJson& pool : pages["pools"]) {
    parts.push_back(fmt::format("{} of {} free ({})", text_of(pool["free"]), text_of(pool["total"]),
                                mebibytes(pool["bytes"])));
  }
  parts.push_back("for shared memory: " + text_of(pages["transparent_for_shared_memory"]));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// The data sets that data.name can name without a path, and where they were found.
std::string data_sets_text(const OrderedJson& data_sets) {
  std::vector<std::string> parts;
  for (const OrderedJson& data : data_sets) {
    const bool has_path = !data["path"].is_null();
    parts.push_back(text_of(data["name"]) + (has_path ? " in " + text_of(data["path"]) : ""));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// A usable link has one line for each of its facts, the first of them behind its name.
void print_link(const OrderedJson& link) {
  const std::string name = "link " + text_of(link["name"]);
  if (!link["usable"].get<bool>()) {
    print_line(name, "cannot be used: " + text_of(link["problem"]));
    return;
  }
  std::string heading = name;
  for (const OrderedJson& fact : link["facts"])
    print_line(std::exchange(heading, ""), text_of(fact));
}

// "tcp over eth0, 10.0.0.7 in 10.0.0.0/24, 10000 Mbit/s"
void print_network(const OrderedJson& network) {
  std::string text = text_of(network["kind"]) + " over " + text_of(network["device"]);
  if (network["address"] != "") {
    text += ", " + text_of(network["address"]) + " in " + text_of(network["network"]);
  }
  const auto megabits = network["megabits"].get<std::uint32_t>();
  text += megabits > 0 ? fmt::format(", {} Mbit/s", megabits) : std::string(", speed unknown");
  if (network["problem"] != "") text += "; left out: " + text_of(network["problem"]);
  print_line("network", text);
}

// A report for people, and for those whom they ask for help: everything that decides how fast this
// machine trains is in it.
void print_text(const OrderedJson& facts) {
  print_line("rondo", text_of(facts["rondo"]));
  print_line("oneDNN", text_of(facts["onednn"]));
  print_line("compiler", text_of(facts["compiler"]));
  print_line("processor", text_of(facts["processor"]));
  print_line("own kernels", text_of(facts["instruction_set"]));
  print_line("bf16", facts["bf16"].get<bool>() ? "yes, train.precision = \"bf16\" is possible"
                                               : "no (neither AVX512_BF16 nor AMX)");
  print_line("cores",
             fmt::format("{} ({} hardware threads) in {} NUMA domain(s)", text_of(facts["cores"]),
                         text_of(facts["hardware_threads"]), text_of(facts["numa_domains"])));
  print_line("CPU quota",
             facts["cpu_quota"].is_null()
                 ? "none"
                 : fmt::format("the time of {:.2f} CPUs", facts["cpu_quota"].get<double>()));
  print_line("caches", caches_text(facts["caches"]));
  print_line("memory",
             fmt::format("{} in the machine (the kernel's MemTotal), {} in its NUMA "
                         "domains (hwloc)",
                         mebibytes(facts["memory_bytes"]), mebibytes(facts["numa_memory_bytes"])));
  print_line("default", fmt::format("{} rank(s) x {} thread(s)", text_of(facts["default_ranks"]),
                                    text_of(facts["default_threads"])));
  for (const OrderedJson& link : facts["links"]) print_link(link);
  for (const OrderedJson& network : facts["networks"]) print_network(network);
  print_line("huge pages", huge_pages_text(facts["huge_pages"]));
  print_line("data sets", data_sets_text(facts["data_sets"]));
}

}  // namespace

void add_info(Command& root) {
  Command info = root.add("info", "Show versions, this machine, and the defaults");
  auto format = std::make_shared<Format>(Format::text);
  add_format_option(info, *format, text_or_json, "text, or json: one object");
  info.does([format](const CommandLine& /*line*/) {
    const OrderedJson facts = collect();
    if (*format == Format::json) {
      // Texts of links and the kernel need not be UTF-8: other bytes become U+FFFD.
      fmt::print("{}\n", facts.dump(2, ' ', false, OrderedJson::error_handler_t::replace));
    } else {
      print_text(facts);
    }
    return exit_done;
  });
}

}  // namespace rondo::tools
