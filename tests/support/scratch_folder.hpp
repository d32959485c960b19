#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::test {

/// The contents of a file, whole blocks at a time; empty when there is none.
[[nodiscard]] inline std::string contents(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

// An empty folder of its own for a test; it goes with the object.
class ScratchFolder {
 public:
  ScratchFolder() {
    // mkdtemp() puts letters of its own in place of the last six.
    std::string name = (std::filesystem::temp_directory_path() / "rondo-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no scratch folder");
    path_ = name;
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // Writes a file into the folder, or replaces it.
  std::filesystem::path write(const std::string& name, std::string_view text) const {
    std::ofstream stream(path_ / name, std::ios::binary);
    stream.write(text.data(), static_cast<std::streamsize>(text.size()));
    return path_ / name;
  }
  std::filesystem::path write(const std::string& name,
                              const std::vector<std::uint8_t>& bytes) const {
    return write(name, std::string(bytes.begin(), bytes.end()));
  }

 private:
  std::filesystem::path path_;
};

}  // namespace rondo::test
