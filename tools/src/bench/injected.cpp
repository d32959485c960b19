#include "bench/injected.hpp"

#include <cstdlib>

namespace rondo::tools {
namespace {

// "0" and "0.0" inject nothing.
std::string amount(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && std::strtod(text, nullptr) > 0.0 ? text : "";
}

}  // namespace

std::string injected_delays() {
  const std::string latency = amount("RONDO_LATENCY_US");
  const std::string bandwidth = amount("RONDO_BANDWIDTH_GBS");
  std::string text;
  if (!latency.empty()) text += latency + "us";
  if (!latency.empty() && !bandwidth.empty()) text += "+";
  if (!bandwidth.empty()) text += bandwidth + "GB/s";
  return text;
}

}  // namespace rondo::tools
