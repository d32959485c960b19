#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/environment.hpp"
#include "bootstrap/service_thread.hpp"
#include "bootstrap/side_channel.hpp"
#include "bootstrap/store_connect.hpp"
#include "bootstrap/store_line.hpp"
#include "bootstrap/store_server.hpp"

namespace rondo::transport::rendezvous {

/// A rank's side channel over the TCP store of rank 0.
///
/// It owns the process' housekeeping thread, and on rank 0 the store, which is told and heard
/// through a socket pair like any other rank.
///
/// - **Lost ranks.** A process that ends is told by the store at once. When the store's process
///   ends, or the line to its host is cut, all that this rank can see is that rank 0 is lost.
///   A stopped process (SIGSTOP) is not lost. (Unless so much is told to it meanwhile, some 64 KiB,
///   that its socket is full for 3.5 s.)
/// - **Rank 0 leaves** in order: everybody is told, and after that hears no more.
/// - **End.** The destructor tells that this rank left, and waits half a second at most (rank 0:
///   one) for that to be on its way. Not to be called by the handler of news.
class StoreClient final : public SideChannel {
 public:
  /// Rank 0: serves the store on `listener`.
  [[nodiscard]] static std::unique_ptr<StoreClient> serve(const Credentials& credentials,
                                                          shm::Descriptor listener);

  /// Another rank: joins the store at `endpoint`. Waits to the rendezvous deadline; throws
  /// Error(rendezvous_failed) that says why it was refused or could not get there.
  [[nodiscard]] static std::unique_ptr<StoreClient> join(const Credentials& credentials,
                                                         const Endpoint& endpoint);

  ~StoreClient() override;
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  [[nodiscard]] std::vector<std::string> allgather(std::string_view mine) override;
  void watch(std::function<void(const News&)> hear) override;
  void tell(const News& news) noexcept override;

  /// The store in this process; nullptr but on rank 0.
  [[nodiscard]] const StoreServer* server() const noexcept { return server_.get(); }

  /// This host's address on the way to rank 0, proved by having connected; on rank 0 one at which
  /// other ranks have reached it, rather not loopback. Empty on rank 0 before the first
  /// allgather(), and when it is alone.
  [[nodiscard]] std::string local_address() const;

 private:
  StoreClient(const Credentials& credentials, Admission admission,
              std::unique_ptr<StoreServer> server);

  std::chrono::milliseconds deadline_;
  std::string local_address_;
  std::unique_ptr<StoreServer> server_;
  StoreLine line_;
  ServiceThread keeper_;  ///< the last: its thread uses the others
};

}  // namespace rondo::transport::rendezvous
