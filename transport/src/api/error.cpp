// The texts of the error codes, and Error itself. Needs nothing else: fuzzers compile it, too.

#include <rondo/transport/error.hpp>

#include <utility>

namespace rondo::transport {
namespace {

class Category final : public std::error_category {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "rondo.transport"; }

  [[nodiscard]] std::string message(int code) const override {
    switch (static_cast<Errc>(code)) {
      case Errc::peer_lost:
        return "peer lost";
      case Errc::mismatch:
        return "ranks posted different operations";
      case Errc::deadline_exceeded:
        return "deadline exceeded";
      case Errc::aborted:
        return "aborted";
      case Errc::bootstrap_failed:
        return "bootstrap failed";
      case Errc::out_of_memory:
        return "out of shared memory";
      case Errc::link_unavailable:
        return "link unavailable";
    }
    return "unknown error";
  }
};

}  // namespace

const std::error_category& error_category() noexcept {
  static const Category category;
  return category;
}

std::error_code make_error_code(Errc code) noexcept {
  return {static_cast<int>(code), error_category()};
}

Error::Error(Errc code, const std::string& what, ErrorDetail detail)
    : std::system_error(make_error_code(code), what), detail_(std::move(detail)) {}

}  // namespace rondo::transport
