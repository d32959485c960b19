// Memory that all ranks of one machine share, without the transport: the barrier before timed
// regions, and the limit that an allreduce is compared with.
//
// Rank 0 makes a file in memory and the others open it under /proc, so the ranks need no name that
// could be left behind. Flags of the barrier lie 128 bytes apart: no two ranks write one cache
// line.

#include "bench/shared_block.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <system_error>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "bench/operation.hpp"
#include "files.hpp"
#include "launch/environment.hpp"

namespace rondo::tools {

// Add elements [first, last) of all ranks' buffers and store the sums into all of them: the loop of
// one_pass_kernel.cpp, compiled once for each of these names.
using OnePass = void(float* const* buffers, int ranks, std::size_t first, std::size_t last);
OnePass one_pass_baseline;
OnePass one_pass_avx2;
OnePass one_pass_avx512;

namespace {

// Buffers begin on pages, and not all at the same offset within a large page.
constexpr std::size_t page = 4096;

// Between two looks at whether the rank that is waited for still runs.
constexpr int yields_per_look = 4096;

std::size_t round_up(std::size_t bytes) { return (bytes + page - 1) / page * page; }

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Rank 0's file of memory; the others open it under /proc.
Descriptor open_memory(transport::World& world, std::size_t bytes) {
  std::array<std::int32_t, 1> number = {-1};
  Descriptor memory;
  if (world.rank() == 0) {
    memory = Descriptor(memfd_create("rondo-bench", MFD_CLOEXEC));
    if (memory.value() < 0) fail("memfd_create");
    // Taken now: a lack of memory is an error here, and not a SIGBUS in the middle of a
    // measurement.
    const int error = posix_fallocate(memory.value(), 0, static_cast<off_t>(bytes));
    if (error != 0) {
      errno = error;
      fail(fmt::format("{} bytes of shared memory", bytes));
    }
    number[0] = memory.value();
  }
  world.communicator().broadcast(std::span<std::int32_t>(number), 0).wait();
  if (world.rank() != 0) {
    // Works for processes of the same user on the same machine, which ranks of a node are.
    const std::string path = fmt::format("/proc/{}/fd/{}", world.ranks()[0].pid, number[0]);
    memory = Descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (memory.value() < 0) fail(path);
  }
  return memory;
}

// Fake nodes share the CPUs of one machine.
bool outnumber_cpus(const transport::World& world) {
  return world.oversubscribed() || world.size() > sysconf(_SC_NPROCESSORS_ONLN);
}

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The variant for the widest vectors that this processor has.
OnePass* one_pass_for_this_processor() {
  if (__builtin_cpu_supports("avx512f")) return one_pass_avx512;
  if (__builtin_cpu_supports("avx2")) return one_pass_avx2;
  return one_pass_baseline;
}

class OnePassOperation final : public BenchOperation {
 public:
  OnePassOperation(SharedBlock& shared, const BenchSetting& setting)
      : shared_(shared),
        ranks_(setting.ranks->size()),
        count_(setting.bytes / sizeof(float)),
        own_(shared.buffer(setting.ranks->rank()), count_),
        given_(Pattern<float>::given(setting.ranks->rank())),
        expected_(Pattern<float>::reduced(setting.members, static_cast<int>(setting.members.size()),
                                          transport::ReduceOp::sum)) {
    for (int rank = 0; rank < ranks_; ++rank) buffers_.push_back(shared.buffer(rank));
    const auto ranks = static_cast<std::size_t>(ranks_);
    const auto rank = static_cast<std::size_t>(setting.ranks->rank());
    // Cutting a few cache lines costs more than it saves.
    const bool cut = count_ >= 64 * ranks;
    first_ = cut ? count_ * rank / ranks : 0;
    last_ = cut ? count_ * (rank + 1) / ranks : (rank == 0 ? count_ : 0);
  }

  [[nodiscard]] BenchFacts facts() const override {
    return {.bytes = own_.size_bytes(), .count = count_};
  }
  void rewrite() override { given_.fill(own_); }
  void run() override {
    shared_.barrier();
    one_pass_(buffers_.data(), ranks_, first_, last_);
    shared_.barrier();
  }
  void read_back() override { read_ = read_all<float>(own_); }
  void spoil() override { tools::spoil<float>(own_); }
  [[nodiscard]] std::int64_t count_wrong() override { return expected_.count_wrong(own_); }

 private:
  SharedBlock& shared_;
  int ranks_;
  std::size_t count_;
  std::span<float> own_;
  Pattern<float> given_;
  Pattern<float> expected_;
  std::vector<float*> buffers_ = {};
  OnePass* one_pass_ = one_pass_for_this_processor();
  std::size_t first_ = 0;
  std::size_t last_ = 0;
  volatile std::uint64_t read_ = 0;
};

}  // namespace

bool on_one_machine(std::span<const transport::RankInfo> ranks, bool fake_nodes) {
  const auto differs_from_first = [&](auto member) {
    return std::ranges::any_of(
        ranks, [&](const auto& rank) { return rank.*member != ranks.front().*member; });
  };
  if (!differs_from_first(&transport::RankInfo::node)) return true;
  return fake_nodes && !differs_from_first(&transport::RankInfo::host);
}

// Every rank writes its own buffer first, so that its pages lie in its own NUMA domain.
SharedBlock::SharedBlock(transport::World& world, std::size_t buffer_bytes)
    : rank_(world.rank()),
      ranks_(world.size()),
      buffer_bytes_(buffer_bytes),
      flags_bytes_(round_up(static_cast<std::size_t>(ranks_) * sizeof(Flag))),
      rank_bytes_(round_up(buffer_bytes)),
      peers_(world.ranks().begin(), world.ranks().end()),
      spins_(outnumber_cpus(world) ? 0 : 100'000) {
  const Descriptor memory =
      open_memory(world, flags_bytes_ + static_cast<std::size_t>(ranks_) * rank_bytes_);
  map(memory.value());
  world.communicator().barrier().wait();  // all have opened it
  std::memset(buffer(rank_), 0, buffer_bytes_);
  barrier();
}

SharedBlock::~SharedBlock() {
  munmap(memory_, flags_bytes_ + static_cast<std::size_t>(ranks_) * rank_bytes_);
}

void SharedBlock::map(int fd) {
  const std::size_t bytes = flags_bytes_ + static_cast<std::size_t>(ranks_) * rank_bytes_;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) fail("mmap");
  memory_ = static_cast<std::byte*>(memory);
}

SharedBlock::Flag& SharedBlock::flag(int rank) const noexcept {
  return reinterpret_cast<Flag*>(memory_)[rank];
}

float* SharedBlock::buffer(int rank) const noexcept {
  std::byte* first = memory_ + flags_bytes_ + static_cast<std::size_t>(rank) * rank_bytes_;
  return reinterpret_cast<float*>(first);
}

// A rank that has ended after it passed the barrier is not missed.
void SharedBlock::throw_if_lost(int peer) const {
  const transport::RankInfo& info = peers_[static_cast<std::size_t>(peer)];
  const bool ended = kill(info.pid, 0) != 0 && errno == ESRCH;
  if (!ended || flag(peer).passed.load(std::memory_order_acquire) >= barriers_) return;
  throw transport::Error(
      transport::Errc::peer_lost,
      fmt::format("rank {} (pid {} on {}) is lost: it ended while rank {} waited for it between "
                  "two measurements",
                  peer, info.pid, info.host, rank_),
      {.rank = peer, .pid = info.pid, .host = info.host, .operation = {}});
}

void SharedBlock::barrier(const std::function<void()>& meanwhile) {
  // Barriers are counted and flags only grow, so that no flag has to be reset.
  ++barriers_;
  // Release: what this rank wrote before is visible to whoever sees the flag (acquire below).
  flag(rank_).passed.store(barriers_, std::memory_order_release);
  for (int peer = 0; peer < ranks_; ++peer) {
    int spins = 0;
    while (flag(peer).passed.load(std::memory_order_acquire) < barriers_) {
      if (meanwhile) meanwhile();
      // Ranks with CPUs of their own spin first, because a system call takes longer than most
      // waits.
      if (++spins > spins_) {
        if (spins % yields_per_look == 0) throw_if_lost(peer);
        sched_yield();
      } else {
        pause();
      }
    }
  }
}

// Messages that were sent are still being progressed while ranks wait.
StartingLine::StartingLine(transport::World& world, std::size_t buffer_bytes, bool messages)
    : world_(world) {
  // A peer may wait for a message that this rank has only posted.
  if (messages || world.nodes() > 1) meanwhile_ = [this] { world_.progress(); };
  if (on_one_machine(world.ranks(), fake_nodes_from_environment() > 1)) {
    block_.emplace(world, buffer_bytes);
  }
}

void StartingLine::wait() {
  // Ranks of one machine wait for each other in shared memory; the transport's barrier would be
  // part of what is measured.
  if (block_) {
    block_->barrier(meanwhile_);
  } else {
    world_.communicator().barrier().wait();
  }
}

std::unique_ptr<BenchOperation> make_one_pass(SharedBlock& shared, const BenchSetting& setting) {
  return std::make_unique<OnePassOperation>(shared, setting);
}

}  // namespace rondo::tools
