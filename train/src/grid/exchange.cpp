#include "grid/exchange.hpp"

#include <cstddef>
#include <span>
#include <utility>

#include "grid/box_copy.hpp"

namespace rondo::train {
namespace {

/// Calls visit(transfer, its first element) for transfers that lie one behind the other.
template <typename T, typename Visit>
void for_each_packed(std::span<const Transfer> transfers, T* first, Visit visit) {
  for (const Transfer& transfer : transfers) {
    visit(transfer, first);
    first += transfer.box.size();
  }
}

std::vector<transport::Neighbour> neighbours_of(const Redistribution& plan, std::span<float> sent,
                                                std::span<float> received) {
  std::vector<transport::Neighbour> neighbours;
  const auto row = [](float* data, const Transfer& transfer) {
    return std::span(data, static_cast<std::size_t>(transfer.box.size()));
  };
  for_each_packed(plan.sends, sent.data(), [&](const Transfer& transfer, float* data) {
    neighbours.emplace_back(transfer.peer, transport::Strided<const float>(row(data, transfer)),
                            transport::Strided<float>());
  });
  for_each_packed(plan.receives, received.data(), [&](const Transfer& transfer, float* data) {
    neighbours.emplace_back(transfer.peer, transport::Strided<const float>(),
                            transport::Strided<float>(row(data, transfer)));
  });
  return neighbours;
}

}  // namespace

Exchange::Exchange(transport::Communicator& communicator, Redistribution plan, Box held, Box wanted,
                   std::pmr::memory_resource* memory, Arrival arrival)
    : plan_(std::move(plan)),
      held_(held),
      wanted_(wanted),
      arrival_(arrival),
      sent_(static_cast<std::size_t>(plan_.words_sent()), memory),
      received_(static_cast<std::size_t>(plan_.words_received()), memory) {
  if (!silent()) travel_ = communicator.plan_sendrecv(neighbours_of(plan_, sent_, received_));
}

void Exchange::start(const float* from) {
  request_.wait();  // if the last run was given up: what it sends must not change
  for_each_packed(plan_.sends, sent_.data(), [&](const Transfer& transfer, float* data) {
    copy_box(transfer.box, {from, held_}, {data, transfer.box});
  });
  if (travel_.has_value()) request_ = travel_->start();
}

void Exchange::start(const float* from, float* to) {
  start(from);
  copy_box(plan_.kept, {from, held_}, {to, wanted_});
}

void Exchange::finish(float* to) {
  request_.wait();
  const auto put = arrival_ == Arrival::adds ? add_box : copy_box;
  for_each_packed(std::span<const Transfer>(plan_.receives), std::as_const(received_).data(),
                  [&](const Transfer& transfer, const float* data) {
                    put(transfer.box, {data, transfer.box}, {to, wanted_});
                  });
}

}  // namespace rondo::train
