// The client of PMI-1, as hydra's mpiexec and `srun --mpi=pmi2` speak it (Slurm's plug-in answers
// both versions of the protocol).
//
// A launcher passes each process a socket, PMI_FD, and puts a key-value space behind it. Requests
// and answers are lines of NAME=VALUE, separated by blanks; no library is needed for that. Rank 0
// puts one value, a barrier makes it visible, and the others get it. The client says at once that
// it is done (finalize): from then on the launcher judges the process by its exit status alone.

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <system_error>

#include <rondo/transport/error.hpp>

#include "bootstrap/launchers.hpp"
#include "bootstrap/sockets.hpp"

namespace rondo::transport::bootstrap {
namespace {

constexpr const char* key = "rondo-store";
constexpr std::size_t longest_line = 64 * 1024;

[[noreturn]] void fail_to_ask(const std::string& what) {
  throw Error(Errc::bootstrap_failed, "bootstrap: the launcher's PMI " + what);
}

// Somebody else may use the connection, or the launcher may have ended.
constexpr const char* advice = "; do the launcher and its PMI_FD still belong to this process?";

// The value of `name` in an answer; empty when it has none.
std::string value_of(const std::string& answer, const std::string& name) {
  const std::string wanted = " " + name + "=";
  const std::size_t found = (" " + answer).find(wanted);
  if (found == std::string::npos) return {};
  const std::size_t begin = found + wanted.size() - 1;
  return answer.substr(begin, answer.find(' ', begin) - begin);
}

class PmiClient {
 public:
  PmiClient(int descriptor, Clock::time_point until) : descriptor_(descriptor), until_(until) {
    ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init");
    space_ = value_of(ask("cmd=get_my_kvsname", "my_kvsname"), "kvsname");
    longest_value_ = value_of(ask("cmd=get_maxes", "maxes"), "vallen_max");
  }

  void put(const std::string& value) {
    // The launcher's limit counts the end of the text, too.
    if (value.size() >= static_cast<std::size_t>(std::atoi(longest_value_.c_str()))) {
      fail_to_ask("takes values of less than " + longest_value_ + " bytes, and the " +
                  std::to_string(value.size()) +
                  " of rank 0's addresses are more: choose one of them with RONDO_INTERFACE");
    }
    ask("cmd=put kvsname=" + space_ + " key=" + key + " value=" + value, "put_result");
  }

  [[nodiscard]] std::string get() {
    return value_of(ask("cmd=get kvsname=" + space_ + " key=" + key, "get_result"), "value");
  }

  void barrier() { ask("cmd=barrier_in", "barrier_out"); }
  void finalize() { ask("cmd=finalize", "finalize_ack"); }

 private:
  // The answer to `request`, which must be of kind `expected`.
  std::string ask(const std::string& request, const std::string& expected) {
    send(request + "\n");
    const std::string answer = receive(request);
    const std::string result = value_of(answer, "rc");
    if (value_of(answer, "cmd") != expected || (!result.empty() && result != "0")) {
      fail_to_ask("answers '" + printable(answer) + "' to '" + request + "'" + advice);
    }
    return answer;
  }

  void send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = send_some(bytes);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0)
        fail_to_ask("cannot be written to: " + std::generic_category().message(errno) + advice);
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
  }

  // A launcher that has ended is an error and no SIGPIPE, at least where it left a socket.
  [[nodiscard]] ssize_t send_some(std::string_view bytes) const noexcept {
    const ssize_t count = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0 || errno != ENOTSOCK) return count;
    return ::write(descriptor_, bytes.data(), bytes.size());
  }

  // One line. The launcher says nothing unless it is asked, so nothing follows it.
  std::string receive(const std::string& request) const {
    std::string line;
    while (!line.ends_with('\n') && line.size() < longest_line) {
      if (!wait_until_ready(descriptor_, POLLIN, until_)) {
        fail_to_ask("has not answered '" + request +
                    "' in time: did all ranks start, and come this far?");
      }
      std::array<char, 4096> buffer{};
      const ssize_t count = ::read(descriptor_, buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail_to_ask(std::string("has closed the connection") + advice);
      line.append(buffer.data(), static_cast<std::size_t>(count));
    }
    line.pop_back();
    return line;
  }

  int descriptor_;
  Clock::time_point until_;
  std::string space_;
  std::string longest_value_;
};

}  // namespace

std::string exchange_over_pmi(int pmi, int rank, const std::string& mine,
                              std::chrono::milliseconds deadline) {
  PmiClient client(pmi, Clock::now() + deadline);
  if (rank == 0) client.put(mine);
  client.barrier();
  std::string text = client.get();
  client.finalize();
  return text;
}

}  // namespace rondo::transport::bootstrap
