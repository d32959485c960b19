#include "links/ucx/quiet.hpp"

#include <ucs/debug/log_def.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace rondo::transport::ucx {
namespace {

constexpr std::size_t word_bytes = 512;
// Counted at every call of the link: found without a call, at the price of 4 bytes of the room that
// libraries loaded late have for such variables.
[[gnu::tls_model("initial-exec")]] thread_local int depth = 0;
thread_local char words[word_bytes] = "";

// UCX may be the host program's, too: what it says outside of the link is not ours to swallow.
ucs_log_func_rc_t keep(const char* /*file*/, unsigned /*line*/, const char* /*function*/,
                       ucs_log_level_t level, const ucs_log_component_config_t* /*component*/,
                       const char* format, va_list arguments) {
  if (depth == 0) return UCS_LOG_FUNC_RC_CONTINUE;
  if (level <= UCS_LOG_LEVEL_WARN) {
    va_list copy;
    va_copy(copy, arguments);
    std::vsnprintf(words, sizeof words, format, copy);
    va_end(copy);
  }
  return std::getenv("UCX_LOG_LEVEL") == nullptr ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

}  // namespace

Quiet::Quiet() noexcept {
  static const bool installed = [] {
    ucs_log_push_handler(keep);
    return true;
  }();
  static_cast<void>(installed);
  ++depth;
}

Quiet::~Quiet() { --depth; }

std::string last_words() {
  std::string said = words;
  words[0] = '\0';
  return said;
}

}  // namespace rondo::transport::ucx
