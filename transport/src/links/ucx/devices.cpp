#include "links/ucx/devices.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

namespace rondo::transport::ucx {
namespace {

namespace fs = std::filesystem;

// A port's GIDs name the network devices that they belong to, each in a file.
bool belongs_to(const fs::path& port, const std::string& interface) {
  std::error_code error;
  for (const auto& gid : fs::directory_iterator(port / "gid_attrs" / "ndevs", error)) {
    std::string owner;
    std::ifstream(gid.path()) >> owner;
    if (owner == interface) return true;
  }
  return false;
}

}  // namespace

std::string devices_of(const std::string& interfaces) {
  std::string devices = interfaces;
  std::istringstream list(interfaces);
  for (std::string interface; std::getline(list, interface, ',');) {
    std::error_code error;
    for (const auto& device : fs::directory_iterator("/sys/class/infiniband", error)) {
      for (const auto& port : fs::directory_iterator(device.path() / "ports", error)) {
        if (!belongs_to(port.path(), interface)) continue;
        devices += "," + device.path().filename().string() + ":" + port.path().filename().string();
      }
    }
  }
  return devices;
}

}  // namespace rondo::transport::ucx
