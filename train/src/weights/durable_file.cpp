// Files that survive a crash of the machine: models and checkpoints.
//
// close() leaves the bytes to the kernel, and rename() only the name, so that after a crash a file
// could have its name and no bytes. A program that writes a file aside, syncs it, gives it its name
// and syncs the folder finds the old file afterwards or the new one, and never a part.

#include "weights/durable_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include <rondo/train/dataset.hpp>

#include "data/dataset_type.hpp"

namespace rondo::train {
namespace {

// Has the file still its name? Whoever wrote it before may have renamed it since it was opened.
bool is_in_place(int descriptor, const std::filesystem::path& path) {
  struct stat opened = {};
  return ::fstat(descriptor, &opened) == 0 &&
         identity_of(path) == FileIdentity(opened.st_dev, opened.st_ino);
}

// Opens the file for this process alone; -1 with EBUSY where another one is writing it. Some file
// systems have no locks; there the last writer counts.
int open_alone(const std::filesystem::path& path) {
  for (;;) {
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor < 0) return descriptor;
    const bool is_busy = ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!is_busy && is_in_place(descriptor, path)) return descriptor;
    ::close(descriptor);
    if (!is_busy) continue;
    errno = EBUSY;
    return -1;
  }
}

}  // namespace

std::optional<FileIdentity> identity_of(const std::filesystem::path& path) noexcept {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return FileIdentity(status.st_dev, status.st_ino);
}

DurableFile::DurableFile(std::filesystem::path path, const char* remedy)
    : path_(std::move(path)), remedy_(remedy), descriptor_(open_alone(path_)) {
  if (descriptor_ >= 0 && ::ftruncate(descriptor_, 0) == 0) return;
  const int reason = errno;
  if (descriptor_ >= 0) ::close(descriptor_);
  errno = reason;
  fail(reason == EBUSY ? "is being written by another program" : "cannot be written");
}

// An error of close() is no loss: what has to be on disk has been synced before.
DurableFile::~DurableFile() { ::close(descriptor_); }

// A write may write a part of the bytes, or be interrupted by a signal.
void DurableFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void DurableFile::sync() {
  if (::fsync(descriptor_) != 0) fail("cannot be synced");
}

void DurableFile::fail(const char* problem) const {
  fail_on_file(path_, fmt::format("{} ({})", problem, error_text(errno)), remedy_);
}

namespace {

// Opens, syncs and closes `path`; the error, or 0.
int sync(const std::filesystem::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  const int error = synced ? 0 : errno;
  if (descriptor >= 0) ::close(descriptor);
  return error;
}

[[noreturn]] void fail_to_sync(const std::filesystem::path& path, int error, const char* remedy) {
  fail_on_file(path, fmt::format("cannot be synced ({})", error_text(error)), remedy);
}

}  // namespace

void sync_file(const std::filesystem::path& file, const char* remedy) {
  if (const int error = sync(file, 0); error != 0) fail_to_sync(file, error, remedy);
}

// A new name is on disk when the folder that has it was synced. Some file systems (of a network, or
// of a program) cannot sync a folder, and say EINVAL: they order names in their own way.
void sync_folder(const std::filesystem::path& folder, const char* remedy) {
  const int error = sync(folder, O_DIRECTORY);
  if (error != 0 && error != EINVAL) fail_to_sync(folder, error, remedy);
}

}  // namespace rondo::train
