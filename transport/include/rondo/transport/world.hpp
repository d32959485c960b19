#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/export.hpp>

namespace rondo::transport {

class ArenaCore;
class WorldCore;

/// Memory that every rank of the node can reach: buffers allocated here are reduced in place.
///
/// A std::pmr::memory_resource, so `std::pmr::vector<float> gradients(n, &world.arena())` works.
/// Blocks are aligned to at least a cache line. It grows by itself, and peers see what it grows
/// by without being asked; what was freed is used again. Running out of memory throws
/// Error(Errc::out_of_memory).
///
/// Belongs to the World's threads, and lives as long as the World.
class RONDO_TRANSPORT_API SharedArena final : public std::pmr::memory_resource {
 public:
  explicit SharedArena(std::unique_ptr<ArenaCore> core) noexcept;
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;
  ~SharedArena() override;

  /// Does all of [data, data + bytes) lie in this arena, or in memory that it has adopted?
  [[nodiscard]] bool contains(const void* data, std::size_t bytes) const noexcept;

  /// Bytes handed out at the moment, to the program and to its communicators: these keep scratch
  /// there, from the first collective that needs some to their end. The scratch is at most 8
  /// messages of 512 KiB for a ring or tree between nodes, with several ranks on a node up to three
  /// times as much and some blocks of 4 MiB; up to twice the length of what is short, scanned or
  /// coalesced. Inside a node only scans and coalesced arrays need any. Where the arena cannot
  /// grow, scratch is ordinary memory.
  [[nodiscard]] std::size_t used_bytes() const noexcept;

 private:
  friend class WorldCore;
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* data, std::size_t bytes, std::size_t alignment) override;
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  std::unique_ptr<ArenaCore> core_;
};

/// Memory of the caller that is in the arena for as long as this lives; see World::adopt(). Moving
/// is cheap and does not touch the memory.
///
/// Belongs to the World's thread, and may outlive the World.
class RONDO_TRANSPORT_API AdoptedMemory {
 public:
  AdoptedMemory() noexcept = default;
  AdoptedMemory(AdoptedMemory&& other) noexcept;
  AdoptedMemory& operator=(AdoptedMemory&& other) noexcept;
  AdoptedMemory(const AdoptedMemory&) = delete;
  AdoptedMemory& operator=(const AdoptedMemory&) = delete;
  /// Releases.
  ~AdoptedMemory();

  /// Makes it ordinary memory again, at the same addresses and with the same contents. No operation
  /// may be pending on it. Where the kernel has no memory for that, it stays usable as it is.
  void release() noexcept;

  /// The adopted memory; empty after release().
  [[nodiscard]] std::span<std::byte> memory() const noexcept { return memory_; }

 private:
  friend class World;
  AdoptedMemory(std::weak_ptr<WorldCore> world, std::span<std::byte> memory,
                std::span<std::byte> pages) noexcept;

  std::weak_ptr<WorldCore> world_;
  std::span<std::byte> memory_;
  std::span<std::byte> pages_;
};

/// Counts what a rank has moved and how long it took, since its World began. Differences of two
/// snapshots describe what happened between them.
///
/// Inside a node collectives send no messages: a rank loads from and stores to its peers' memory.
/// Point-to-point operations do, and so does everything between nodes.
struct Counters {
  std::uint64_t operations =
      0;  ///< completed: collectives, messages and signals, those of split() and share(), too
  std::uint64_t loaded_bytes = 0;     ///< read from peers' memory
  std::uint64_t stored_bytes = 0;     ///< written into peers' memory
  std::uint64_t sent_messages = 0;    ///< to any rank
  std::uint64_t sent_bytes = 0;       ///< in them
  std::uint64_t fabric_messages = 0;  ///< those of them that left the node
  std::uint64_t fabric_bytes = 0;
  // Operations of a few KiB inside a node are timed only as far as they are waited for, as waiting.
  /// Inside transport calls, before the last rank had posted what was waited for.
  std::chrono::nanoseconds waiting{0};
  /// Inside transport calls, after it: the cost of moving and reducing.
  std::chrono::nanoseconds communicating{0};

  /// Bytes that crossed between ranks on this rank's account.
  [[nodiscard]] std::uint64_t moved_bytes() const noexcept { return loaded_bytes + stored_bytes; }
};

class Team;

/// How a rank waits for its peers.
enum class Waiting {
  automatic,  ///< spin, then yield, then sleep; starts at yield when ranks outnumber CPUs
  spin,       ///< never yields the CPU
  yield,      ///< yields it to any thread that is ready
  block,      ///< sleeps at once
};

/// Which threads may use a World.
enum class Threads {
  one,       ///< one at a time; only World::abort() may be called from others
  multiple,  ///< any number at the same time, each with communicators and requests of its own
};

/// A wait that has lasted for WorldOptions::stall_warning, as WorldOptions::on_stall gets it.
struct Stall {
  int rank;                            ///< who waits
  std::string operation;               ///< what for, for example "allreduce #12 of 1024 f32"
  std::vector<int> missing;            ///< World ranks that it waits for; they may wait, too
  std::chrono::milliseconds duration;  ///< how long so far
};

/// How ranks of different nodes reach each other. All ranks pass the same.
struct FabricOptions {
  /// "auto"; "tcp"; "ucx" or "ofi", also with a transport or provider, as in "ucx:tcp" or
  /// "ofi:verbs"; "shm" among the fake nodes of one machine. Never replaced by another in silence.
  std::string name = "auto";
  /// Network interfaces, by preference: names, globs, exclusions, addresses, as in
  /// "ib0,eth*,^docker0,10.0.0.0/8". Empty: RDMA and other high-speed networks first, then the
  /// fastest interface, of those that all nodes have. See docs/on-a-cluster.md.
  std::string interface = {};
  /// Ranks of one machine count as this many nodes, so that paths between nodes can be tried.
  int fake_nodes = 0;
  /// Makes messages between nodes slower than they are, for experiments.
  std::chrono::nanoseconds injected_latency{0};
  double injected_bytes_per_second = 0;  ///< 0: as fast as it goes

  [[nodiscard]] bool injects_delays() const noexcept {
    return injected_latency.count() > 0 || injected_bytes_per_second > 0;
  }
  /// Which algorithm reduces how many bytes: "rd:0-16k;rh:16k-1m;ring:1m-max", recursive doubling,
  /// recursive halving, rings. Empty: by the number of ranks. "flat-rd", "flat-rh" and "flat-ring"
  /// leave out the operations on each node, for collectives of so many bytes of every kind.
  std::string allreduce = {};
};

/// Settings of a World; the defaults suit training. All ranks pass the same.
struct WorldOptions {
  Waiting waiting = Waiting::automatic;  ///< the same on all ranks, which is checked
  /// The limit of every wait without one of its own. Time in which the rank does not run (it is
  /// suspended, or stopped by a debugger) does not count.
  std::chrono::milliseconds deadline{300'000};
  std::chrono::milliseconds stall_warning{10'000};  ///< when the observer is called
  std::chrono::milliseconds bootstrap_deadline{60'000};
  /// Called once by each wait that has lasted for `stall_warning`, on the thread that waits: within
  /// Request::wait(), wait_for() or the destructor of a pending Request. It must not throw, and of
  /// this World, its communicators and requests it may call World::abort() only.
  std::function<void(const Stall&)> on_stall = {};
  std::size_t small_bytes = 4096;  ///< up to here everyone reads all; at most 4096, and 1024 in an
                                   ///< allreduce of two ranks, unless both are outside of arenas
  Team* team = nullptr;            ///< lent; must outlive the World
  /// As MPI_THREAD_MULTIPLE where it is `multiple`; ranks may differ. Calls then take turns, and
  /// who waits lets others in. An exchange of 8 bytes took 0.167 us instead of 0.155.
  Threads threads = Threads::one;
  FabricOptions fabric = {};
  /// Where flight records (see FlightRecord) go when something fails: this rank's own, once, on the
  /// first deadline_exceeded, peer_lost, mismatch or abort; and, as far as they are on this node,
  /// those of ranks that are gone and of the rank that the error names. Empty: nowhere.
  std::string dump_folder = {};
};

/// How a host program brings ranks together: copies `mine`, which is equally long on all ranks,
/// into `all` of each, in rank order, as MPI_Allgather does; `all` is as long as `mine` of all
/// ranks together. Its exceptions are passed on.
using Allgather = std::function<void(std::span<const std::byte> mine, std::span<std::byte> all)>;

/// Where one rank of a World runs.
struct RankInfo {
  int pid = 0;
  std::string host = {};
  int node = 0;  ///< ranks of one node share memory; nodes are counted in order of their first rank
};

/// The ranks of a job, seen by one of them: this process.
///
/// - **Sources.** attach() reads what the launcher set (RONDO_COORDINATOR, RONDO_RANK,
///   RONDO_SIZE, as `rondo run` does), or asks PMIx, PMI or the variables of Slurm or torchrun (see
///   launched()); without a launcher it is a World of one rank. PMIx and PMI are asked once in a
///   process, which must not use them otherwise (by MPI, for example): create() serves programs
///   that have an MPI or a bootstrap of their own. make_threads() makes ranks of threads of this
///   process, for tests and examples.
/// - **End.** When a World ends, this rank has left in order. It does not wait for its peers, nor
///   disturb operations that it took part in, however late others are; a collective that it did not
///   post cannot complete, and fails with Errc::peer_lost on those who wait for it. A message that
///   did not come from it is given up when nothing has arrived for its communicator for 2 s.
/// - **Nodes.** Ranks of one machine (and network namespace) are a node and share memory; others
///   are reached over a fabric, see FabricOptions. RONDO_COORDINATOR names the store of rank 0
///   where ranks of several nodes meet; a World of several nodes owns one service thread.
/// - **Failures.** A dead peer is noticed at once by whoever needs it, through its pidfd or, on
///   another node, its connection to the store; a cut line within 5 s. An error names the rank that
///   was lost first, also where a rank is waited for that has left because of it. The store is rank
///   0's: when rank 0 has left, what happens to ranks of other nodes is noticed only where a
///   message to or from them fails, and else at the deadline; but after a loss, nobody waits for
///   them for more than 2 s in which nothing arrives. An error of a rank that is known to be lost
///   is put off by what arrives, and for 2 s at most after a message of its communicator has ended.
/// - **Again.** A process may attach() again after its World has ended; all ranks of the job do so.
///   Until the process ends, no other one may be this rank: a program that it starts with the
///   job's variables is refused.
/// - **fork().** A World belongs to the process that made it. A forked child, such as a worker of a
///   DataLoader, may end its copies of a World and of what belongs to it, and may read what lies in
///   the arena; neither disturbs the parent. Operations throw std::logic_error there, as does what
///   makes or waits for something; abort() ends the parent's ranks on its node. It may make Worlds
///   of its own. As long as it lives, it keeps the parent's connections open: ranks of other nodes
///   notice the parent's death when such children have ended, too, or at the deadline.
/// - **Trust.** Ranks of one node are processes of one user: each asks the kernel. Ranks that meet
///   at a store prove that they know the job's secret (HMAC-SHA256), or, without one, that they are
///   of the same user on the same host. Their later messages to the store go over the network in
///   the clear, and links between nodes carry data without any authentication or encryption. So the
///   network between the hosts must be trusted.
/// - **Threads.** Belongs to one thread at a time; only abort() may be called from others. With
///   WorldOptions::threads = Threads::multiple, all of a World, its arena, communicators, requests
///   and plans may be used by several threads at the same time, with these rules: collectives of
///   one communicator, whose order counts, come from one thread at a time; so does what makes
///   communicators; and a Request or Plan belongs to one thread at a time. Whoever makes progress
///   makes it for all threads. The World is destroyed when no thread is in a call of it.
class RONDO_TRANSPORT_API World {
 public:
  /// Joins the World that the launcher started this process for, or makes one of a single rank.
  /// Waits for all ranks; throws Error(Errc::bootstrap_failed) that names who did not come.
  [[nodiscard]] static World attach(const WorldOptions& options = {});

  /// Rank `rank` of a World of `size` processes that the host program has started, and whose bytes
  /// it can exchange: by MPI, a store, a file. Collective over these ranks: each calls `allgather`
  /// twice, with 1 KiB, and waits for all. Nothing needs to be set in the environment; what is set
  /// there about fabrics (RONDO_FABRIC, RONDO_INTERFACE) is the default. A process may have several
  /// Worlds at a time. Throws Error(Errc::bootstrap_failed) that names who did not come, and
  /// std::invalid_argument.
  [[nodiscard]] static World create(int rank, int size, const Allgather& allgather,
                                    const WorldOptions& options = {});

  /// `ranks` Worlds that are one job; hand each to a thread of its own.
  [[nodiscard]] static std::vector<World> make_threads(int ranks, const WorldOptions& options = {});

  World(World&&) noexcept = default;
  World& operator=(World&&) noexcept = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  /// Was it made by a parent of this process? Any thread may ask.
  [[nodiscard]] bool is_forked_copy() const noexcept;

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;

  /// All ranks of the World.
  [[nodiscard]] Communicator& communicator() noexcept;

  /// This rank's shared memory.
  [[nodiscard]] SharedArena& arena() noexcept;

  /// Puts a buffer that was allocated elsewhere into the arena, where it lies: its addresses and
  /// contents stay, and until what is returned is released or destroyed it is reduced in place, as
  /// if arena() had allocated it. Copies the memory once, and once more at the release. Local.
  ///
  /// Whole pages are replaced, with what lies beside the buffer on its first and last page: no
  /// other thread may write to any of it during this call and the release, and of two buffers that
  /// share a page only one can be adopted. For operations what lies beside it stays ordinary
  /// memory. The memory must be released before it is freed, or resized: realloc() would add pages
  /// of the arena to it that belong to others. A forked child shares it with the parent until it
  /// releases its copy. It must not lie on the stack of another thread.
  ///
  /// Throws std::invalid_argument for memory that is not private, readable and writable (such as
  /// memory of files or of other processes), lies on the stack of the calling thread or of the
  /// main one, or is adopted already, and Error(Errc::out_of_memory).
  [[nodiscard]] AdoptedMemory adopt(std::span<std::byte> memory);

  /// Advances every pending operation of this rank as far as it goes without waiting.
  void progress();

  /// As progress(), but returns after about `budget` when there is more to do.
  void progress(std::chrono::nanoseconds budget);

  /// A descriptor for a program's own poll(), epoll or event loop, as libfabric's fi_wait objects
  /// and ucp_worker_get_efd() of UCX give one. It becomes readable (POLLIN) when progress() may
  /// move something. The loop arms it, polls it if that returns true, and then tests its requests:
  ///
  ///     const int descriptor = world.event_descriptor();
  ///     while (!request.test()) {
  ///       if (!world.arm()) continue;
  ///       poll(...);  // descriptor, and others of the program
  ///     }
  ///
  /// - **Ownership.** The World's, until it ends: the program polls it, and does nothing else with
  ///   it. It is the same one in every call.
  /// - **Cost.** Three descriptors, and a thread that sleeps while nobody wakes this rank. Both
  ///   begin with the first call. A wake-up by a rank of this node goes through that thread, so
  ///   4 bytes between two processes that sleep took 23 to 24 us on a computer of two cores, where
  ///   wait() took 6 to 11. The thread is woken when this rank sleeps in wait(), too.
  /// - **Lost peers.** Who has died wakes nobody. While the descriptor is armed it also becomes
  ///   readable after `check_interval`, so that test() can look for lost peers; 0: never, and then
  ///   the program calls test() now and then by itself. Deadlines hold for waits only.
  /// - **Errors.** std::invalid_argument under Waiting::spin, where ranks do not wake each other,
  ///   and for a negative interval; std::system_error without descriptors or threads.
  [[nodiscard]] int event_descriptor(
      std::chrono::nanoseconds check_interval = std::chrono::milliseconds(50));

  /// Makes progress, and arms event_descriptor() if nothing moved. True: the descriptor becomes
  /// readable as soon as progress() may move something, even if that happens before the program
  /// polls. False: something has moved (or the job was aborted), so test the requests instead of
  /// polling.
  ///
  /// Holds until the next call of this World, its communicators or requests, whichever it is: test
  /// and post before arm(), not between arm() and poll(). The descriptor may also be readable for
  /// nothing. Throws std::invalid_argument if event_descriptor() was not called before.
  [[nodiscard]] bool arm();

  /// Ends the job's communication: every wait of every rank fails with Errc::aborted and
  /// `reason`. Local, idempotent, never waits for peers; may be called from any thread. The flight
  /// record is dumped last.
  void abort(std::string_view reason) noexcept;

  /// Writes this rank's flight record as JSON (see FlightRecord) to `path`. Throws
  /// std::system_error, also where a device, a pipe or a folder has that name.
  void dump_flight_record(const std::string& path) const;

  /// Sets WorldOptions::dump_folder, for a program that learns it after it has joined.
  void set_dump_folder(const std::string& folder);

  [[nodiscard]] Counters counters() const noexcept;

  /// One entry per rank.
  [[nodiscard]] std::span<const RankInfo> ranks() const noexcept;

  /// Do the node's ranks outnumber the CPUs that they may use?
  [[nodiscard]] bool oversubscribed() const noexcept;

  [[nodiscard]] int nodes() const noexcept;

  /// How nodes reach each other and why so, for people: "ucx: tcp over eth1, auto: ...; left out:
  /// verbs over mlx5_0:1: ...". The same for all pairs of nodes; says so where their devices
  /// have other names. "none" when all ranks are on one node. Says so when delays are injected.
  [[nodiscard]] const std::string& route() const noexcept;

  /// WorldOptions::fabric with what the launcher's variables say of the rest, injected delays among
  /// it.
  [[nodiscard]] const FabricOptions& fabric() const noexcept;

 private:
  explicit World(std::shared_ptr<WorldCore> core);
  std::shared_ptr<WorldCore> core_;
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace rondo::transport
