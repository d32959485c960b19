#include "bootstrap/store_client.hpp"

#include <sys/socket.h>

#include <array>
#include <utility>

#include <rondo/transport/error.hpp>

#include "bootstrap/limits.hpp"
#include "bootstrap/tcp.hpp"

namespace rondo::transport::rendezvous {
namespace {

std::vector<ServiceTask*> chores_of(StoreLine& line, StoreServer* server) {
  // The line finishes first: through it rank 0 tells that it leaves.
  std::vector<ServiceTask*> chores{&line};
  if (server != nullptr) chores.push_back(server);
  return chores;
}

}  // namespace

StoreClient::StoreClient(const Credentials& credentials, Admission admission,
                         std::unique_ptr<StoreServer> server)
    : deadline_(credentials.rendezvous_deadline),
      local_address_(std::move(admission.local_address)),
      server_(std::move(server)),
      line_(static_cast<int>(credentials.self.rank), static_cast<int>(credentials.self.size),
            std::move(admission.connection), std::move(admission.host)),
      keeper_(chores_of(line_, server_.get())) {}

StoreClient::~StoreClient() { line_.post_left(); }

std::unique_ptr<StoreClient> StoreClient::serve(const Credentials& credentials,
                                                shm::Descriptor listener) {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    throw Error(Errc::rendezvous_failed, "rendezvous: rank 0 cannot make a socket pair");
  }
  Admission own{.connection = Connection(shm::Descriptor(ends[0]), handshake_cap),
                .host = credentials.self.host};
  shm::Descriptor far(ends[1]);
  make_nonblocking(listener.get());
  auto server = std::make_unique<StoreServer>(credentials, std::move(listener), std::move(far));
  return std::unique_ptr<StoreClient>(
      new StoreClient(credentials, std::move(own), std::move(server)));
}

std::unique_ptr<StoreClient> StoreClient::join(const Credentials& credentials,
                                               const Endpoint& endpoint) {
  return std::unique_ptr<StoreClient>(
      new StoreClient(credentials, connect_to_store(credentials, endpoint), nullptr));
}

std::vector<std::string> StoreClient::allgather(std::string_view mine) {
  // The store knows best who did not come, and says so at the deadline; give it time to.
  constexpr std::chrono::seconds grace{5};
  line_.post_blob(mine);
  keeper_.wake();
  return line_.wait_for_blobs(deadline_ + grace);
}

void StoreClient::watch(std::function<void(const News&)> hear) {
  line_.watch(std::move(hear));
  keeper_.wake();
}

void StoreClient::tell(const News& news) noexcept {
  line_.post_news(news);
  keeper_.wake();
}

std::string StoreClient::local_address() const {
  return server_ ? server_->reached_at() : local_address_;
}

}  // namespace rondo::transport::rendezvous
