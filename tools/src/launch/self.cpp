#include "launch/self.hpp"

#include <filesystem>

namespace rondo::tools {

std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

}  // namespace rondo::tools
