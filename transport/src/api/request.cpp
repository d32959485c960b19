#include <rondo/transport/request.hpp>

#include <utility>

#include "core/communicator_core.hpp"
#include "core/world_core.hpp"

namespace rondo::transport {

Request::Request(std::shared_ptr<CommunicatorCore> core, OperationRecord* record) noexcept
    : core_(std::move(core)), record_(record) {}

Request::Request(Request&& other) noexcept
    : core_(std::move(other.core_)), record_(std::exchange(other.record_, nullptr)) {}

Request& Request::operator=(Request&& other) noexcept {
  if (this == &other) return *this;
  release();
  core_ = std::move(other.core_);
  record_ = std::exchange(other.record_, nullptr);
  return *this;
}

Request::~Request() { release(); }

void Request::release() noexcept {
  if (record_ == nullptr) return;
  core_->release(*record_);
  record_ = nullptr;
}

bool Request::test() {
  if (record_ == nullptr) return true;
  if (!record_->finished()) {
    core_->world().progress();
    if (!record_->finished()) core_->check_peers(*record_);
    if (record_->finished()) record_->stamp.end();
  }
  if (record_->stage == Stage::failed) throw Error(core_->failure().value());
  return record_->stage == Stage::complete;
}

void Request::wait() {
  if (record_ != nullptr) static_cast<void>(core_->wait(*record_, std::nullopt));
}

bool Request::wait_for(std::chrono::nanoseconds limit) {
  return record_ == nullptr || core_->wait(*record_, limit);
}

void Request::cancel() noexcept {
  if (record_ == nullptr || !core_->cancel(*record_)) return;
  record_ = nullptr;
}

std::error_code Request::status() const noexcept {
  if (record_ == nullptr || record_->stage != Stage::failed) return {};
  return core_->failure().value().code();
}

void CommunicatorCore::release(OperationRecord& record) noexcept {
  try {
    static_cast<void>(wait(record, std::nullopt));
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): nothing can be thrown here
    // The communicator is poisoned; its next call tells.
  }
  record.held = false;
  recycle(record);
}

}  // namespace rondo::transport
