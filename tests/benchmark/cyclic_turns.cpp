// Writes the turns that the clocks of cyclic workers make as a token trace, which a run replays
// (update.replay), and prints when each epoch ends on these clocks. A run of ranks that share cores
// then learns as one would whose ranks have the given speeds.
//
// Synchronous training on the same clocks takes the slowest worker's time for each global batch.

#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/sync/cyclic.hpp>

#include "support/cyclic_forecast.hpp"

namespace {

using namespace rondo;

constexpr const char* usage =
    "usage: cyclic-turns TRACE dynamic|fixed EPOCH_SAMPLES EPOCHS MINIBATCH_SAMPLES DURATION...\n"
    "  TRACE              the file to write, for update.replay\n"
    "  EPOCH_SAMPLES      samples of an epoch, of all workers\n"
    "  MINIBATCH_SAMPLES  samples of one worker's mini-batch\n"
    "  DURATION...        of a mini-batch of worker 0, 1, ...; in any unit\n";

sync::Delay delay_of(const std::string& name) {
  if (name == "dynamic") return sync::Delay::dynamic;
  if (name == "fixed") return sync::Delay::fixed;
  throw std::invalid_argument("the delay is dynamic or fixed, not " + name);
}

std::string line_of(const sync::Turn& turn) {
  const bool pushes = turn.kind == sync::Turn::Kind::push;
  return R"({"worker":)" + std::to_string(turn.worker) + R"(,"kind":")" +
         (pushes ? "push" : "park") + R"(","minibatches":)" + std::to_string(turn.minibatches) +
         "}\n";
}

void write(const sync::test::CyclicForecast& played, const std::string& file) {
  std::ofstream stream(file);
  for (const sync::Turn& turn : played.turns) stream << line_of(turn);
  stream.flush();
  if (!stream) throw std::runtime_error(file + " cannot be written");
}

// An epoch ends when the last of its workers has stopped.
void print_epochs(const sync::test::CyclicForecast& played, std::size_t workers) {
  std::size_t parks = 0;
  std::cout << "epoch,ends\n";
  for (std::size_t i = 0; i < played.turns.size(); ++i) {
    if (played.turns[i].kind != sync::Turn::Kind::park || ++parks % workers != 0) continue;
    std::cout << parks / workers << ',' << played.times[i] << '\n';
  }
}

void run(std::span<const std::string> arguments) {
  std::vector<double> durations;
  for (const std::string& text : arguments.subspan(5)) durations.push_back(std::stod(text));
  const std::int64_t epoch_samples = std::stoll(arguments[2]);
  const auto played = sync::test::forecast(
      {.workers = static_cast<int>(durations.size()),
       .duration = [&](int worker,
                       std::int64_t) { return durations[static_cast<std::size_t>(worker)]; },
       .delay = delay_of(arguments[1]),
       .minibatch_samples = std::stoll(arguments[4]),
       .epoch_samples = epoch_samples,
       .total_samples = epoch_samples * std::stoll(arguments[3])},
      1e300);
  write(played, arguments[0]);
  print_epochs(played, durations.size());
}

}  // namespace

int main(int count, char** values) {
  const std::vector<std::string> arguments(values + 1, values + count);
  if (arguments.size() < 6) {
    std::cerr << usage;
    return 2;
  }
  try {
    run(arguments);
  } catch (const std::exception& failure) {
    std::cerr << "cyclic-turns: " << failure.what() << '\n' << usage;
    return 1;
  }
}
