#include "command.hpp"

namespace rondo::tools {

void add_bench(CLI::App& app, const std::vector<std::string>& arguments, int& status) {
  CLI::App* bench = app.add_subcommand("bench", "Measure what this machine gives");
  bench->require_subcommand(1);
  add_bench_operations(*bench, arguments, status);
  add_bench_tune(*bench, arguments, status);
  add_bench_model(*bench, arguments, status);
}

}  // namespace rondo::tools
