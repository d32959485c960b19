#include "links/plugin.hpp"

#include <array>
#include <cstring>
#include <sstream>

#include <rondo/transport/error.hpp>

#include "links/plugin_library.hpp"

namespace rondo::transport {
namespace {

// What a link may take to send the rest when it is closed.
constexpr int close_timeout_ms = 2'000;
constexpr std::size_t text_bytes = 4'096;

constexpr const char* known_plugins[] = {"ofi", "ucx"};

/// A link behind a plug-in's table.
class PluginLink final : public Link {
 public:
  PluginLink(const rondo_link_v1_table& table, rondo_link& link) noexcept
      : table_(&table), link_(&link) {}
  PluginLink(const PluginLink&) = delete;
  PluginLink& operator=(const PluginLink&) = delete;
  ~PluginLink() override { table_->close(link_, close_timeout_ms); }

  void post_send(int peer, std::uint64_t tag, std::span<const std::byte> data,
                 Transfer& transfer) override {
    table_->post_send(link_, peer, tag, data.data(), data.size(), &transfer);
  }
  void post_recv(int peer, std::uint64_t tag, std::span<std::byte> data,
                 Transfer& transfer) override {
    table_->post_recv(link_, peer, tag, data.data(), data.size(), &transfer);
  }
  bool progress() override { return table_->progress(link_) != 0; }
  void cancel(Transfer& transfer) override { table_->cancel(link_, &transfer); }
  void discard(int peer, std::uint64_t tag, std::uint64_t mask) override {
    if (table_->discard != nullptr) table_->discard(link_, peer, tag, mask);
  }

  [[nodiscard]] std::optional<int> arm() override {
    int descriptor = -1;
    if (table_->arm(link_, &descriptor) == 0) return std::nullopt;
    return descriptor;
  }

  [[nodiscard]] std::string address() const override {
    const void* data = nullptr;
    std::size_t bytes = 0;
    table_->address(link_, &data, &bytes);
    return {static_cast<const char*>(data), bytes};
  }

  void connect(int rank, const std::string& address) override {
    check(table_->connect(link_, rank, address.data(), address.size()),
          "cannot use the address of rank " + std::to_string(rank));
  }

  void add_memory(std::span<std::byte> memory) override {
    check(table_->add_memory(link_, memory.data(), memory.size()),
          "cannot register " + std::to_string(memory.size()) +
              " bytes (is the limit of locked memory, `ulimit -l`, too low?)");
  }

  [[nodiscard]] std::string route() const override {
    return std::string(table_->name) + ": " + table_->route(link_);
  }
  [[nodiscard]] std::string error_text(const Transfer& transfer) const override {
    return table_->error_text(transfer.error);
  }

 private:
  void check(int error, const std::string& what) const {
    if (error == 0) return;
    throw Error(Errc::link_unavailable, route() + ": " + what + ": " + table_->error_text(error));
  }

  const rondo_link_v1_table* table_;
  rondo_link* link_;
};

}  // namespace

std::unique_ptr<Link> open_plugin(const std::string& name, const LinkOptions& options) {
  const PluginLibrary plugin = load_plugin(name);
  const rondo_link_options raw{.rank = options.rank,
                               .size = options.size,
                               .provider = options.provider.c_str(),
                               .device = options.device.c_str(),
                               .peers = options.peers};
  rondo_link* link = nullptr;
  std::array<char, text_bytes> error{};
  if (plugin.table->open(&raw, &link, error.data(), error.size()) != 0) {
    throw Error(Errc::link_unavailable,
                "the link '" + name + "' cannot be opened: " + error.data());
  }
  return std::make_unique<PluginLink>(*plugin.table, *link);
}

std::string problem_of_plugin(const std::string& name) {
  try {
    static_cast<void>(load_plugin(name));
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

std::vector<PluginFacts> list_plugins() {
  std::vector<PluginFacts> plugins;
  for (const char* name : known_plugins) {
    PluginFacts plugin{.name = name, .path = find_plugin(name), .problem = {}, .facts = {}};
    try {
      std::array<char, text_bytes> text{};
      load_plugin(name).table->describe(text.data(), text.size());
      std::istringstream lines(text.data());
      for (std::string line; std::getline(lines, line);) plugin.facts.push_back(line);
    } catch (const Error& error) {
      plugin.problem = error.what();
    }
    plugins.push_back(std::move(plugin));
  }
  return plugins;
}

}  // namespace rondo::transport
