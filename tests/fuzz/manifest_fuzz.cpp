// The manifest of a checkpoint, which may be damaged or made up: it is refused, or it is the text
// that a manifest is written as. For libFuzzer; the test runs a fixed number of inputs.
//
// Nobody guesses a checksum, so that most inputs are also tried with one that fits. And few changes
// of bytes leave a text that is JSON, so that most mutations are those of one value in it.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/manifest.hpp"
#include "weights/checksum.hpp"

// The names are libFuzzer's.
extern "C" {
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most,
                                    unsigned seed);
std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);
}

namespace {

using rondo::train::checksum_of;
using rondo::train::parse_manifest;
using rondo::train::to_json;
using Json = nlohmann::ordered_json;

// The last manifest that was accepted. Most that the fuzzer keeps are refused, and what it makes of
// those is refused, too; so half of the mutations begin with this one.
std::string accepted;

void try_text(std::string_view text) {
  try {
    if (to_json(parse_manifest(text)) != text) std::abort();
    accepted = text;
  } catch (const std::invalid_argument&) {
    // refused, with a reason
  }
}

// As the writer spells it.
std::string spelled(const Json& body) {
  return body.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// With the checksum of the rest.
std::string signed_text(Json body) {
  body.erase("xxh3");
  const std::string text = spelled(body);
  body["xxh3"] = checksum_of(std::as_bytes(std::span(text)));
  return spelled(body);
}

// A value and all that it contains.
void list(Json& value, std::vector<Json*>& values) {
  values.push_back(&value);
  if (!value.is_structured()) return;
  for (Json& member : value) list(member, values);
}

template <class Number>
Json mutated_number(Number number) {
  std::uint8_t bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  (void)LLVMFuzzerMutate(bytes, sizeof number, sizeof number);
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

Json mutated_text(std::string text) {
  constexpr std::size_t longer = 16;
  const std::size_t size = text.size();
  text.resize(size + longer);
  auto* bytes = reinterpret_cast<std::uint8_t*>(text.data());
  text.resize(LLVMFuzzerMutate(bytes, size, text.size()));
  return text;
}

// Numbers stay numbers, and texts stay texts: what has another form is refused early.
void mutate(Json& value) {
  if (value.is_string()) {
    value = mutated_text(value.get<std::string>());
  } else if (value.is_number_unsigned()) {
    value = mutated_number(value.get<std::uint64_t>());
  } else if (value.is_number_integer()) {
    value = mutated_number(value.get<std::int64_t>());
  } else if (value.is_array() && !value.empty()) {
    value.push_back(value.back());
  } else if (!value.is_structured()) {
    value = mutated_number(value.is_number() ? value.get<double>() : 1.0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_text(text);
  Json body = Json::parse(text, nullptr, false);
  if (body.is_object()) try_text(signed_text(std::move(body)));
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  std::minstd_rand random(seed);
  std::string_view begin(reinterpret_cast<const char*>(data), size);
  if (random() % 2 == 0 && !accepted.empty()) begin = accepted;
  Json body = Json::parse(begin, nullptr, false);
  if (!body.is_object() || random() % 8 == 0) return LLVMFuzzerMutate(data, size, most);
  std::vector<Json*> values;
  list(body, values);
  Json& value = *values[random() % values.size()];
  if (random() % 8 == 0) {
    value = Json(*values[random() % values.size()]);
  } else {
    mutate(value);
  }
  const std::string text = spelled(body);
  if (text.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}
