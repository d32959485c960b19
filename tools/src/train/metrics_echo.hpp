#pragma once

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace rondo::tools {

/// Copies whole lines of a growing file to a stream, as they come.
class MetricsEcho {
 public:
  MetricsEcho(std::filesystem::path file, std::FILE* stream);

  /// Copies what is new. The file need not exist yet.
  void copy();

 private:
  std::filesystem::path path_;
  std::FILE* stream_;
  std::ifstream file_ = {};
  std::string rest_ = {};  // an unfinished line
};

}  // namespace rondo::tools
