#include "core/names.hpp"

namespace rondo::transport {

const char* name_of(shm::Collective collective) noexcept {
  switch (collective) {
    case shm::Collective::allreduce:
      return "allreduce";
    case shm::Collective::broadcast:
      return "broadcast";
    case shm::Collective::allgather:
      return "allgather";
    case shm::Collective::barrier:
      return "barrier";
    case shm::Collective::reduce_scatter:
      return "reduce_scatter";
    case shm::Collective::reduce:
      return "reduce";
    case shm::Collective::alltoall:
      return "alltoall";
  }
  return "unknown operation";
}

const char* name_of(ElementType type) noexcept {
  switch (type) {
    case ElementType::f32:
      return "f32";
    case ElementType::f64:
      return "f64";
    case ElementType::bf16:
      return "bf16";
    case ElementType::i32:
      return "i32";
    case ElementType::i64:
      return "i64";
    case ElementType::u8:
      return "u8";
  }
  return "?";
}

const char* name_of(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
  }
  return "?";
}

bool reduces(shm::Collective collective) noexcept {
  return collective == shm::Collective::allreduce || collective == shm::Collective::reduce ||
         collective == shm::Collective::reduce_scatter;
}

const char* name_of(PointToPointCall call) noexcept {
  switch (call) {
    case PointToPointCall::send:
      return "send";
    case PointToPointCall::recv:
      return "recv";
    case PointToPointCall::sendrecv:
      return "sendrecv";
    case PointToPointCall::put_signal:
      return "put_signal";
    case PointToPointCall::wait_signal:
      return "wait_signal";
  }
  return "?";
}

const char* name_of(Stage stage) noexcept {
  switch (stage) {
    case Stage::queued:
      return "queued";
    case Stage::published:
      return "published";
    case Stage::running:
      return "running";
    case Stage::draining:
      return "draining";
    case Stage::complete:
      return "complete";
    case Stage::failed:
      return "failed";
  }
  return "?";
}

const char* name_of(Waiting waiting) noexcept {
  switch (waiting) {
    case Waiting::automatic:
      return "auto";
    case Waiting::spin:
      return "spin";
    case Waiting::yield:
      return "yield";
    case Waiting::block:
      return "block";
  }
  return "?";
}

}  // namespace rondo::transport
