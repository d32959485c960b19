#include <CLI/CLI.hpp>

int main(int argc, char** argv) {
  CLI::App app{"Trains convolutional networks on clusters of CPUs."};
  CLI11_PARSE(app, argc, argv);
  return 0;
}
