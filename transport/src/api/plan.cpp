#include <rondo/transport/plan.hpp>

#include <utility>

#include "core/communicator_core.hpp"

namespace rondo::transport {

Plan::Plan(std::shared_ptr<CommunicatorCore> core, OperationRecord& prototype) noexcept
    : core_(std::move(core)), prototype_(&prototype) {
  prototype.held = true;
}

Plan::Plan(Plan&& other) noexcept
    : core_(std::move(other.core_)), prototype_(std::exchange(other.prototype_, nullptr)) {}

Plan& Plan::operator=(Plan&& other) noexcept {
  std::swap(core_, other.core_);
  std::swap(prototype_, other.prototype_);
  return *this;
}

Plan::~Plan() {
  if (prototype_ != nullptr) core_->drop(*prototype_);
}

Request Plan::start() { return core_->post_like(*prototype_); }

void CommunicatorCore::drop(OperationRecord& prototype) noexcept {
  prototype.held = false;
  recycle(prototype);
}

Request CommunicatorCore::post_like(const OperationRecord& prototype) {
  OperationRecord& record = take_record();
  record.ordered = prototype.ordered;
  if (prototype.ordered) {
    record.posted = prototype.posted;
    record.protocol = prototype.protocol;
    return post(record);
  }
  record.call = prototype.call;
  record.parts.clear();
  for (std::size_t i = 0; i < prototype.parts.size(); ++i) {
    record.parts.add().describe_as(prototype.parts[i]);
  }
  return post_parts(record);
}

}  // namespace rondo::transport
