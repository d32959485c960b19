// The manifest of a checkpoint, which may be damaged or made up: it is refused, or it is the text
// that a manifest is written as. For libFuzzer; the test runs a fixed number of inputs.
//
// Nobody guesses a checksum, so that most inputs are also tried with one that fits.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "checkpoint/manifest.hpp"

namespace {

using rondo::train::checksum_of;
using rondo::train::parse_manifest;
using rondo::train::to_json;
using Json = nlohmann::ordered_json;

void try_text(std::string_view text) {
  try {
    if (to_json(parse_manifest(text)) != text) std::abort();
  } catch (const std::invalid_argument&) {
    // refused, with a reason
  }
}

// As the writer spells it, with the checksum of the rest.
std::string signed_text(Json body) {
  const auto spelled = [&body] {
    return body.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  };
  body.erase("xxh3");
  const std::string text = spelled();
  body["xxh3"] = checksum_of(std::as_bytes(std::span(text)));
  return spelled();
}

}  // namespace

// The name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_text(text);
  Json body = Json::parse(text, nullptr, false);
  if (body.is_object()) try_text(signed_text(std::move(body)));
  return 0;
}
