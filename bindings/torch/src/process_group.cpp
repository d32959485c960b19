// The operations of torch.distributed, in terms of the transport's.
//
// Each makes an Operation, prepares tensors that are dense, posts, and says what to copy back when
// it has completed. Data that is moved and not reduced travels as bytes.

#include "process_group.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include <c10/util/Exception.h>
#include <torch/csrc/utils/pybind.h>

#include "reductions.hpp"

namespace rondo::torch_backend {

namespace {

using transport::Communicator;
using transport::Request;

/// Tags of users are below it.
constexpr int end_of_tags = Communicator::max_tag / 2;

std::span<std::uint8_t> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::uint8_t*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

std::span<const std::uint8_t> const_bytes_of(const at::Tensor& tensor) { return bytes_of(tensor); }

void check_tensor(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.layout() == at::kStrided && tensor.device().is_cpu(),
              "rondo takes dense tensors on the CPU; this one is ", tensor.layout(), " on ",
              tensor.device());
}

at::Tensor& only(Tensors& tensors) {
  TORCH_CHECK(tensors.size() == 1, "rondo takes one tensor for each rank, not ", tensors.size());
  check_tensor(tensors[0]);
  return tensors[0];
}

Tensors& only(std::vector<Tensors>& lists, std::size_t ranks) {
  TORCH_CHECK(lists.size() == 1, "rondo takes one list of tensors, not ", lists.size());
  TORCH_CHECK(lists[0].size() == ranks, "the list must have a tensor for each of the ", ranks,
              " ranks, not ", lists[0].size());
  for (const auto& tensor : lists[0]) check_tensor(tensor);
  return lists[0];
}

void check_alike(const Tensors& tensors, const at::Tensor& model) {
  for (const auto& tensor : tensors) {
    TORCH_CHECK(tensor.scalar_type() == model.scalar_type() && tensor.numel() == model.numel(),
                "all tensors must be of one type and size: ", model.scalar_type(), " x ",
                model.numel(), " and ", tensor.scalar_type(), " x ", tensor.numel());
  }
}

void check_types(const Tensors& tensors, const at::Tensor& model) {
  for (const auto& tensor : tensors) {
    TORCH_CHECK(tensor.scalar_type() == model.scalar_type(),
                "all tensors must be of one type: ", model.scalar_type(), " and ",
                tensor.scalar_type());
  }
}

/// Every one of `wholes` must have `ranks` parts of the size of that of `parts`.
void check_parts(const char* what, const Tensors& wholes, const Tensors& parts, int ranks) {
  TORCH_CHECK(wholes.size() == parts.size(), "there must be as many inputs as outputs, not ",
              parts.size(), " and ", wholes.size());
  for (std::size_t i = 0; i < wholes.size(); ++i) {
    check_tensor(wholes[i]);
    check_tensor(parts[i]);
    TORCH_CHECK(wholes[i].numel() == parts[i].numel() * ranks &&
                    wholes[i].scalar_type() == parts[i].scalar_type(),
                what, ranks, " times as large; they have ", wholes[i].numel(), " and ",
                parts[i].numel(), " elements");
  }
}

/// Memory for one row of `model`'s elements for each rank.
at::Tensor rows_like(const at::Tensor& model, int rows) {
  return at::empty({rows, model.numel()},
                   model.options().memory_format(at::MemoryFormat::Contiguous));
}

/// The elements of all tensors, one after the other.
at::Tensor concatenated(const Tensors& tensors) {
  Tensors flat;
  for (const auto& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  return at::cat(flat);
}

std::vector<std::size_t> bytes_of_each(const Tensors& tensors) {
  std::vector<std::size_t> bytes;
  for (const auto& tensor : tensors) bytes.push_back(tensor.nbytes());
  return bytes;
}

/// Copies the rows of `flat` into `tensors` when `operation` has completed.
void copy_rows_back(Operation& operation, at::Tensor flat, Tensors tensors) {
  operation.then([flat, tensors] {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      at::Tensor to = tensors[i];
      to.copy_(flat[static_cast<int64_t>(i)].view(to.sizes()));
    }
  });
}

/// `tensor` itself if it is contiguous, else contiguous memory that is copied back at the end.
at::Tensor output_of(Operation& operation, at::Tensor tensor) {
  if (tensor.is_contiguous()) return operation.keep(tensor);
  at::Tensor flat = operation.keep(at::empty(tensor.sizes(), tensor.options()));
  operation.then([flat, tensor]() mutable { tensor.copy_(flat); });
  return flat;
}

at::Tensor input_of(Operation& operation, const at::Tensor& tensor) {
  return operation.keep(tensor.contiguous());
}

}  // namespace

ProcessGroup::ProcessGroup(std::shared_ptr<Engine> engine, int rank, int size,
                           std::chrono::milliseconds timeout)
    : Base(rank, size), engine_(std::move(engine)), timeout_(timeout) {
  init();
}

ProcessGroup::~ProcessGroup() { ProcessGroup::shutdown(); }

/// The engine's thread and callbacks may need Python's lock before they end: tensors that they free
/// belong to objects of Python. While Python ends nothing is released: it has closed the engine.
void ProcessGroup::shutdown() {
  std::optional<pybind11::gil_scoped_release> released;
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) released.emplace();
  engine_->close();
}

c10::intrusive_ptr<Base::Options> ProcessGroup::getBackendOptions() {
  return c10::make_intrusive<Base::Options>(getBackendName(), timeout_);
}

c10::intrusive_ptr<Base> ProcessGroup::split(const StorePointer& store,
                                             const std::vector<int>& ranks,
                                             const c10::intrusive_ptr<Base::Options>& options) {
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  if (own == ranks.end()) return {};
  return create_group(store, static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()),
                      options->timeout);
}

ProcessGroup::Preparation ProcessGroup::make(c10d::OpType type, Tensors outputs,
                                             std::chrono::milliseconds timeout) {
  ++sequence_;
  const auto limit = timeout == c10d::kUnsetTimeout ? timeout_.load() : timeout;
  return {.no_grad = {},
          .operation = c10::make_intrusive<Operation>(engine_, type, std::move(outputs), limit)};
}

WorkPointer ProcessGroup::post(const Preparation& prepared, const Engine::Start& start) {
  engine_->post(prepared.operation, start);
  return prepared.operation;
}

WorkPointer ProcessGroup::post(const Preparation& prepared,
                               const std::vector<Engine::Start>& starts) {
  return post(prepared, [&](Communicator& communicator, std::vector<Request>& requests) {
    for (const auto& start : starts) start(communicator, requests);
  });
}

void ProcessGroup::check_rank(const char* what, int64_t rank) const {
  TORCH_CHECK(rank >= 0 && rank < size_, "rondo: ", what, " ", rank, " is not one of the ", size_,
              " ranks of the group");
}

/// Contiguous tensors are reduced where they are. Others are copied, even if they are dense: on
/// another rank the elements may lie in another order.
void ProcessGroup::add_allreduce(Operation& operation, std::vector<Engine::Start>& starts,
                                 at::Tensor& tensor, const c10d::ReduceOp& op) {
  check_tensor(tensor);
  const at::Tensor data = operation.keep(tensor.contiguous());
  if (!data.is_same(tensor)) operation.then([data, tensor]() mutable { tensor.copy_(data); });
  starts.push_back([data, joined = find_op(tensor.scalar_type(), op)](
                       Communicator& communicator, std::vector<Request>& requests) {
    requests.push_back(torch_backend::allreduce(communicator, data, joined));
  });
}

WorkPointer ProcessGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors[0].is_sparse() && tensors[0].device().is_cpu()) {
    return allreduce_sparse(tensors[0], options);
  }
  only(tensors);
  return allreduce_coalesced(tensors, {options});
}

WorkPointer ProcessGroup::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& options) {
  const auto operation = make(c10d::OpType::ALLREDUCE, tensors, options.timeout);
  std::vector<Engine::Start> starts;
  for (auto& tensor : tensors) add_allreduce(*operation, starts, tensor, options.reduceOp);
  return post(operation, starts);
}

WorkPointer ProcessGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  at::Tensor tensor = only(tensors);
  check_rank("the root", options.rootRank);
  const int root = static_cast<int>(options.rootRank);
  const auto operation = make(c10d::OpType::REDUCE, tensors, options.timeout);
  const auto op = find_op(tensor.scalar_type(), options.reduceOp);
  at::Tensor in = operation->keep(tensor.contiguous());
  if (rank_ == root && !in.is_same(tensor)) {
    operation->then([in, tensor]() mutable { tensor.copy_(in); });
  }
  return post(operation, [&](Communicator& communicator, std::vector<Request>& requests) {
    requests.push_back(torch_backend::reduce(communicator, in, in, root, op));
  });
}

WorkPointer ProcessGroup::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                         const c10d::ReduceScatterOptions& options) {
  at::Tensor output = only(outputs);
  Tensors& parts = only(inputs, static_cast<std::size_t>(size_));
  check_types(parts, output);
  TORCH_CHECK(parts[static_cast<std::size_t>(rank_)].numel() == output.numel(),
              "reduce_scatter: the output must be as large as this rank's input, ",
              parts[static_cast<std::size_t>(rank_)].numel(), " elements, not ", output.numel());
  const auto operation = make(c10d::OpType::REDUCE_SCATTER, outputs, options.timeout);
  const auto op = find_op(output.scalar_type(), options.reduceOp);
  std::vector<std::size_t> counts;
  for (const auto& part : parts) counts.push_back(static_cast<std::size_t>(part.numel()));
  const at::Tensor in = operation->keep(concatenated(parts));
  const at::Tensor out = output_of(*operation, output);
  return post(operation, [&](Communicator& communicator, std::vector<Request>& requests) {
    requests.push_back(torch_backend::reduce_scatter(communicator, in, out, op, counts));
  });
}

WorkPointer ProcessGroup::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

WorkPointer ProcessGroup::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  check_parts("reduce_scatter: the input must be of the output's type and ", inputs, outputs,
              size_);
  const auto operation = make(c10d::OpType::_REDUCE_SCATTER_BASE, outputs, options.timeout);
  std::vector<Engine::Start> starts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    starts.push_back([in = input_of(*operation, inputs[i]), out = output_of(*operation, outputs[i]),
                      op = find_op(outputs[i].scalar_type(), options.reduceOp)](
                         Communicator& communicator, std::vector<Request>& requests) {
      requests.push_back(torch_backend::reduce_scatter(communicator, in, out, op, {}));
    });
  }
  return post(operation, starts);
}

WorkPointer ProcessGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  at::Tensor tensor = only(tensors);
  check_rank("the root", options.rootRank);
  const auto operation = make(c10d::OpType::BROADCAST, tensors, options.timeout);
  at::Tensor data = operation->keep(tensor.contiguous());
  if (!data.is_same(tensor) && rank_ != options.rootRank) {
    operation->then([data, tensor]() mutable { tensor.copy_(data); });
  }
  return post(operation, [&](Communicator& communicator, std::vector<Request>& requests) {
    requests.push_back(communicator.broadcast(bytes_of(data), static_cast<int>(options.rootRank)));
  });
}

WorkPointer ProcessGroup::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& options) {
  at::Tensor input = only(inputs);
  Tensors& list = only(outputs, static_cast<std::size_t>(size_));
  check_alike(list, input);
  const auto operation = make(c10d::OpType::ALLGATHER, list, options.timeout);
  const at::Tensor in = input_of(*operation, input);
  const at::Tensor all = operation->keep(rows_like(in, size_));
  copy_rows_back(*operation, all, list);
  return post(operation, [&](Communicator& communicator, std::vector<Request>& requests) {
    requests.push_back(communicator.allgather(const_bytes_of(in), bytes_of(all)));
  });
}

WorkPointer ProcessGroup::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

WorkPointer ProcessGroup::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& options) {
  check_parts("allgather: the output must be of the input's type and ", outputs, inputs, size_);
  const auto operation = make(c10d::OpType::_ALLGATHER_BASE, outputs, options.timeout);
  std::vector<Engine::Start> starts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    starts.push_back(
        [in = input_of(*operation, inputs[i]), out = output_of(*operation, outputs[i])](
            Communicator& communicator, std::vector<Request>& requests) {
          requests.push_back(communicator.allgather(const_bytes_of(in), bytes_of(out)));
        });
  }
  return post(operation, starts);
}

WorkPointer ProcessGroup::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  TORCH_CHECK(outputs.size() == static_cast<std::size_t>(size_),
              "allgather_coalesced: there must be a list for each of the ", size_, " ranks, not ",
              outputs.size());
  Tensors all_outputs;
  for (const auto& list : outputs) {
    TORCH_CHECK(list.size() == inputs.size(), "allgather_coalesced: each list must have ",
                inputs.size(), " tensors, as the inputs, not ", list.size());
    all_outputs.insert(all_outputs.end(), list.begin(), list.end());
  }
  const auto operation = make(c10d::OpType::ALLGATHER_COALESCED, all_outputs, options.timeout);
  std::vector<std::pair<at::Tensor, at::Tensor>> moves;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(inputs[i]);
    Tensors list;
    for (const auto& of_rank : outputs) list.push_back(of_rank[i]);
    check_alike(list, inputs[i]);
    const at::Tensor in = input_of(*operation, inputs[i]);
    moves.emplace_back(in, operation->keep(rows_like(in, size_)));
    copy_rows_back(*operation, moves.back().second, list);
  }
  return post(operation, [&](Communicator& communicator, std::vector<Request>& requests) {
    for (const auto& [in, all] : moves) {
      requests.push_back(communicator.allgather(const_bytes_of(in), bytes_of(all)));
    }
  });
}

WorkPointer ProcessGroup::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                 const c10d::GatherOptions& options) {
  at::Tensor input = only(inputs);
  check_rank("the root", options.rootRank);
  const int root = static_cast<int>(options.rootRank);
  Tensors list;
  if (rank_ == root) {
    list = only(outputs, static_cast<std::size_t>(size_));
    check_alike(list, input);
  } else {
    TORCH_CHECK(outputs.empty(), "gather: only the root has outputs");
  }
  const auto operation = make(c10d::OpType::GATHER, list, options.timeout);
  const at::Tensor in = input_of(*operation, input);
  at::Tensor all;
  if (rank_ == root) {
    all = operation->keep(rows_like(in, size_));
    copy_rows_back(*operation, all, list);
  }
  return post(operation, [&](Communicator& communicator, std::vector<Request>& requests) {
    const auto out = all.defined() ? bytes_of(all) : std::span<std::uint8_t>();
    requests.push_back(communicator.gather(const_bytes_of(in), out, root));
  });
}

WorkPointer ProcessGroup::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                  const c10d::ScatterOptions& options) {
  at::Tensor output = only(outputs);
  check_rank("the root", options.rootRank);
  const int root = static_cast<int>(options.rootRank);
  const auto operation = make(c10d::OpType::SCATTER, outputs, options.timeout);
  at::Tensor all;
  if (rank_ == root) {
    Tensors& list = only(inputs, static_cast<std::size_t>(size_));
    check_alike(list, output);
    all = operation->keep(concatenated(list));
  } else {
    TORCH_CHECK(inputs.empty(), "scatter: only the root has inputs");
  }
  const at::Tensor out = output_of(*operation, output);
  return post(operation, [&](Communicator& communicator, std::vector<Request>& requests) {
    const auto in = all.defined() ? const_bytes_of(all) : std::span<const std::uint8_t>();
    requests.push_back(communicator.scatter(in, bytes_of(out), root));
  });
}

/// Cuts contiguous tensors by bytes. Ranks may cut by sizes or without: to the others it is one
/// operation.
WorkPointer ProcessGroup::exchange(const Preparation& prepared, const at::Tensor& output,
                                   const Counts& output_bytes, const at::Tensor& input,
                                   const Counts& input_bytes) {
  const auto own = static_cast<std::size_t>(rank_);
  TORCH_CHECK(output_bytes[own] == input_bytes[own],
              "alltoall: what a rank sends to itself must be as large as what it receives");
  return post(prepared, [&](Communicator& communicator, std::vector<Request>& requests) {
    requests.push_back(
        communicator.alltoallv(const_bytes_of(input), input_bytes, bytes_of(output), output_bytes));
  });
}

/// The bytes of each rank's part of `tensor`, which is cut along its first dimension.
ProcessGroup::Counts ProcessGroup::bytes_by_rank(const at::Tensor& tensor,
                                                 const std::vector<int64_t>& sizes) const {
  const auto ranks = static_cast<std::size_t>(size_);
  TORCH_CHECK(sizes.empty() || sizes.size() == ranks, "alltoall: there must be ", ranks,
              " sizes, not ", sizes.size());
  const int64_t rows = tensor.size(0);
  TORCH_CHECK(!sizes.empty() || rows % size_ == 0, "alltoall: without sizes, the first dimension, ",
              rows, ", must divide by ", size_);
  const auto lengths = sizes.empty() ? std::vector<int64_t>(ranks, rows / size_) : sizes;
  TORCH_CHECK(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) == rows,
              "alltoall: the sizes must add up to the first dimension, ", rows);
  const std::size_t row_bytes = rows == 0 ? 0 : tensor.nbytes() / static_cast<std::size_t>(rows);
  Counts bytes;
  for (const int64_t length : lengths) {
    TORCH_CHECK(length >= 0, "alltoall: a size is negative: ", length);
    bytes.push_back(static_cast<std::size_t>(length) * row_bytes);
  }
  return bytes;
}

WorkPointer ProcessGroup::alltoall_base(at::Tensor& output, at::Tensor& input,
                                        std::vector<int64_t>& output_sizes,
                                        std::vector<int64_t>& input_sizes,
                                        const c10d::AllToAllOptions& options) {
  check_tensor(output);
  check_tensor(input);
  TORCH_CHECK(output.scalar_type() == input.scalar_type(),
              "alltoall: input and output must be of one type");
  const auto operation = make(c10d::OpType::ALLTOALL_BASE, {output}, options.timeout);
  const at::Tensor in = input_of(*operation, input);
  const at::Tensor out = output_of(*operation, output);
  return exchange(operation, out, bytes_by_rank(out, output_sizes), in,
                  bytes_by_rank(in, input_sizes));
}

WorkPointer ProcessGroup::alltoall(Tensors& outputs, Tensors& inputs,
                                   const c10d::AllToAllOptions& options) {
  const auto ranks = static_cast<std::size_t>(size_);
  TORCH_CHECK(outputs.size() == ranks && inputs.size() == ranks, "alltoall: there must be ", ranks,
              " inputs and outputs, not ", inputs.size(), " and ", outputs.size());
  for (const auto& list : {inputs, outputs}) {
    for (const auto& tensor : list) check_tensor(tensor);
    check_types(list, inputs[0]);
  }
  const auto operation = make(c10d::OpType::ALLTOALL, outputs, options.timeout);
  const at::Tensor in = operation->keep(concatenated(inputs));
  int64_t count = 0;
  for (const auto& output : outputs) count += output.numel();
  const at::Tensor out = operation->keep(at::empty({count}, in.options()));
  operation->then([out, outputs] {
    int64_t begin = 0;
    for (at::Tensor to : outputs) {
      to.copy_(out.narrow(0, begin, to.numel()).view(to.sizes()));
      begin += to.numel();
    }
  });
  return exchange(operation, out, bytes_of_each(outputs), in, bytes_of_each(inputs));
}

WorkPointer ProcessGroup::send(Tensors& tensors, int peer, int tag) {
  at::Tensor tensor = only(tensors);
  check_rank("the receiver", peer);
  TORCH_CHECK(tag >= 0 && tag < end_of_tags, "tags are 0 to ", end_of_tags - 1, ", not ", tag);
  const auto operation = make(c10d::OpType::SEND, {}, timeout_);
  const at::Tensor data = input_of(*operation, tensor);
  return post(operation, [&](Communicator& communicator, std::vector<Request>& requests) {
    requests.push_back(communicator.send(const_bytes_of(data), peer, tag));
  });
}

WorkPointer ProcessGroup::recv(Tensors& tensors, int peer, int tag) {
  at::Tensor tensor = only(tensors);
  check_rank("the sender", peer);
  TORCH_CHECK(tag >= 0 && tag < end_of_tags, "tags are 0 to ", end_of_tags - 1, ", not ", tag);
  const auto operation = make(c10d::OpType::RECV, tensors, timeout_);
  const at::Tensor data = output_of(*operation, tensor);
  return post(operation, [&](Communicator& communicator, std::vector<Request>& requests) {
    requests.push_back(communicator.recv(bytes_of(data), peer, tag));
  });
}

WorkPointer ProcessGroup::recvAnysource(Tensors& /*tensors*/, int /*tag*/) {
  TORCH_CHECK(false, "rondo cannot receive from any rank: pass the sender's");
}

WorkPointer ProcessGroup::barrier(const c10d::BarrierOptions& options) {
  return post(make(c10d::OpType::BARRIER, {}, options.timeout),
              [](Communicator& communicator, std::vector<Request>& requests) {
                requests.push_back(communicator.barrier());
              });
}

/// The transport's error names the ranks that have not come, all of them.
void ProcessGroup::monitoredBarrier(const c10d::BarrierOptions& options, bool /*all_ranks*/) {
  barrier(options)->wait();
}

}  // namespace rondo::torch_backend
