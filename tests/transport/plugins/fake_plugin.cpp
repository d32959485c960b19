// A plug-in for plugin_test.cpp: its messages are done as soon as they are posted.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "links/plugin.hpp"

namespace rondo::transport {
namespace {

class FakeLink final : public Link {
 public:
  void post_send(int /*peer*/, std::uint64_t /*tag*/, std::span<const std::byte> data,
                 Transfer& transfer) override {
    transfer.end(0, data.size());
  }
  void post_recv(int /*peer*/, std::uint64_t /*tag*/, std::span<std::byte> /*data*/,
                 Transfer& transfer) override {
    transfer.end(5, 0);
  }
  bool progress() override { return ++progressed_ == 1; }
  void cancel(Transfer& transfer) override { transfer.state = TransferState::idle; }
  [[nodiscard]] std::optional<int> arm() override { return std::nullopt; }
  [[nodiscard]] std::string address() const override { return {"loft\0 7", 7}; }
  [[nodiscard]] std::string route() const override { return "fake: pigeon over air"; }
  [[nodiscard]] std::string error_text(const Transfer& transfer) const override {
    return transfer.error == 5 ? "no such loft" : "unknown";
  }

 private:
  [[nodiscard]] std::string try_connect(int /*rank*/, const std::string& to) override {
    return to == address() ? "" : "no such loft";
  }

  int progressed_ = 0;
};

// A plug-in of another release must not be called.
void end_unless_of_this_release() {
  if (std::strcmp(RONDO_TEST_RELEASE, RONDO_VERSION) != 0) std::abort();
}

std::string describe() {
  end_unless_of_this_release();
  return "version 9.8\nprovider pigeon\n";
}

std::unique_ptr<Link> open_link(const LinkOptions& options) {
  end_unless_of_this_release();
  if (options.provider == "dodo") {
    throw std::invalid_argument("there is no provider 'dodo'; take 'pigeon'");
  }
  return std::make_unique<FakeLink>();
}

}  // namespace

const LinkPlugin rondo_link_plugin = {
    .release = RONDO_TEST_RELEASE, .open = open_link, .describe = describe};

}  // namespace rondo::transport
