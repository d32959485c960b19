#include "trainer/token_trace.hpp"

#include <array>
#include <fstream>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>

namespace rondo::train {
namespace {

using TurnKind = sync::Turn::Kind;

constexpr std::array kinds = {TurnKind::push, TurnKind::skip, TurnKind::park};

TurnKind kind_of(std::string_view name) {
  for (const TurnKind kind : kinds) {
    if (name_of(kind) == name) return kind;
  }
  throw std::invalid_argument("no such kind");
}

sync::Turn turn_of(const std::string& line, int workers) {
  const auto object = nlohmann::json::parse(line);
  const sync::Turn turn{.kind = kind_of(object.at("kind").get<std::string>()),
                        .worker = object.at("worker").get<int>(),
                        .minibatches = object.at("minibatches").get<int>()};
  if (turn.worker < 0 || turn.worker >= workers || turn.minibatches < 0) {
    throw std::invalid_argument("no such worker");
  }
  return turn;
}

}  // namespace

std::string_view name_of(sync::Turn::Kind kind) noexcept {
  switch (kind) {
    case TurnKind::push:
      return "push";
    case TurnKind::skip:
      return "skip";
    case TurnKind::park:
      return "park";
  }
  return "";
}

void append_token_trace(const std::filesystem::path& file, const std::vector<sync::Push>& turns) {
  std::ofstream stream(file, std::ios::app);
  for (const sync::Push& push : turns) {
    const nlohmann::ordered_json line = {{"worker", push.turn.worker},
                                         {"kind", name_of(push.turn.kind)},
                                         {"minibatches", push.turn.minibatches}};
    stream << line.dump() << '\n';
  }
  stream.flush();
  if (!stream) throw DataError(file.string() + ": cannot be written");
}

std::vector<sync::Turn> read_token_trace(const std::filesystem::path& file, int workers) {
  std::ifstream stream(file);
  if (!stream) {
    throw ConfigError("update.replay: " + file.string() +
                      " cannot be read; give the token_trace.jsonl of a run folder");
  }
  std::vector<sync::Turn> turns;
  for (std::string line; std::getline(stream, line);) {
    try {
      turns.push_back(turn_of(line, workers));
    } catch (const std::exception&) {  // of JSON, or one's own
      throw ConfigError("update.replay: " + file.string() + ":" + std::to_string(turns.size() + 1) +
                        ": is no turn of one of " + std::to_string(workers) +
                        " workers; give the token_trace.jsonl of a run with as many ranks");
    }
  }
  return turns;
}

}  // namespace rondo::train
