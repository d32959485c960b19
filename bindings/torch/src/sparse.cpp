// The sum of sparse tensors, as gradients of embeddings are: every rank gathers the indices and
// values of all, and puts them together.
//
// Ranks have different numbers of values, so sizes are exchanged first, and waited for within the
// call; indices and values travel later.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <c10/util/hash.h>

#include "process_group.hpp"

namespace rondo::torch_backend {
namespace {

using transport::Communicator;
using transport::Request;

// The facts that ranks tell each other about their tensors.
struct Extent {
  int64_t values = 0;
  int64_t shape = 0;  // equal on all ranks: a number for sizes, dimensions and type
};

int64_t shape_of(const at::Tensor& tensor) {
  const auto sizes = tensor.sizes().vec();
  return static_cast<int64_t>(
      c10::get_hash(sizes, tensor.sparse_dim(), static_cast<int>(tensor.scalar_type())) >> 1U);
}

// Bytes of rows of which every rank has another number.
struct Gathered {
  at::Tensor mine;
  at::Tensor all;
  std::vector<std::size_t> counts;

  Gathered(at::Tensor rows, const std::vector<Extent>& extents) : mine(std::move(rows)) {
    auto sizes = mine.sizes().vec();
    sizes[0] = 0;
    for (const Extent& extent : extents) sizes[0] += extent.values;
    all = at::empty(sizes, mine.options());
    const int64_t row_bytes =
        mine.element_size() * c10::multiply_integers(sizes.begin() + 1, sizes.end());
    for (const Extent& extent : extents) {
      counts.push_back(static_cast<std::size_t>(extent.values * row_bytes));
    }
  }

  [[nodiscard]] Request post(Communicator& communicator) const {
    const std::span<const std::uint8_t> in(static_cast<const std::uint8_t*>(mine.data_ptr()),
                                           static_cast<std::size_t>(mine.nbytes()));
    const std::span<std::uint8_t> out(static_cast<std::uint8_t*>(all.data_ptr()),
                                      static_cast<std::size_t>(all.nbytes()));
    return communicator.allgather(in, out, counts);
  }
};

}  // namespace

// Equal indices of several ranks are summed by coalesce(), alike on all ranks.
WorkPointer ProcessGroup::allreduce_sparse(at::Tensor tensor,
                                           const c10d::AllreduceOptions& options) {
  TORCH_CHECK(options.reduceOp == c10d::ReduceOp::SUM, "rondo: sparse tensors can only be summed");
  const at::Tensor mine = tensor.coalesce();
  const Extent extent{.values = mine._nnz(), .shape = shape_of(mine)};
  std::vector<Extent> extents(static_cast<std::size_t>(size_));
  const auto sizes = make(c10d::OpType::ALLGATHER, {}, options.timeout);
  post(sizes, [&](Communicator& communicator, std::vector<Request>& requests) {
    const auto* first = reinterpret_cast<const int64_t*>(&extent);
    auto* all = reinterpret_cast<int64_t*>(extents.data());
    requests.push_back(communicator.allgather(std::span<const int64_t>(first, 2),
                                              std::span<int64_t>(all, 2 * extents.size())));
  });
  sizes->wait();
  for (std::size_t r = 0; r < extents.size(); ++r) {
    TORCH_CHECK(extents[r].shape == extent.shape, "rondo: rank ", r,
                " passed a sparse tensor of another size, number of sparse dimensions or type");
  }

  const Gathered indices(mine.indices().t().contiguous(), extents);
  const Gathered values(mine.values().contiguous(), extents);
  const auto operation = make(c10d::OpType::ALLREDUCE, {tensor}, options.timeout);
  for (const auto& kept : {indices.mine, indices.all, values.mine, values.all})
    operation->keep(kept);
  operation->then([all_indices = indices.all, all_values = values.all, tensor]() mutable {
    tensor.copy_(at::sparse_coo_tensor(all_indices.t(), all_values, tensor.sizes()).coalesce());
  });
  return post(operation, [&](Communicator& communicator, std::vector<Request>& requests) {
    requests.push_back(indices.post(communicator));
    requests.push_back(values.post(communicator));
  });
}

}  // namespace rondo::torch_backend
