#include "links/ucx/open.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>
#include <sstream>
#include <string_view>

#include "links/ucx/devices.hpp"
#include "links/ucx/message.hpp"
#include "links/ucx/quiet.hpp"

namespace rondo::transport::ucx {
namespace {

// UCX is for other nodes; inside one, ranks have a link of their own.
constexpr const char* default_transports = "^posix,sysv,cma,knem,xpmem";

void check(ucs_status_t status, const std::string& what) {
  if (status == UCS_OK) return;
  const std::string said = last_words();
  throw OpenError(what + ": " + ucs_status_string(status) + (said.empty() ? "" : ": " + said));
}

bool is_shared_memory(std::string_view transport) {
  static const std::set<std::string_view> names = {"posix", "sysv", "cma", "knem", "xpmem",
                                                   "mm",    "shm",  "sm",  "self"};
  return names.contains(transport);
}

// Transports that cannot tell when a peer is gone refuse an endpoint that asks for it.
ucp_err_handling_mode_t error_mode_of(const std::string& transports) {
  std::istringstream list(transports);
  for (std::string transport; std::getline(list, transport, ',');) {
    if (!is_shared_memory(transport)) return UCP_ERR_HANDLING_MODE_PEER;
  }
  return UCP_ERR_HANDLING_MODE_NONE;
}

bool is_in_environment(const char* name) {
  return std::getenv((std::string("UCX_") + name).c_str()) != nullptr;
}

/// UCX's settings: its defaults, then UCX_... of the environment, then what was asked for.
class Settings {
 public:
  Settings() { check(ucp_config_read(nullptr, nullptr, &config_), "UCX's settings"); }
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;
  ~Settings() { ucp_config_release(config_); }

  void set(const char* name, const std::string& value) {
    check(ucp_config_modify(config_, name, value.c_str()),
          std::string("UCX does not take ") + name + "=" + value);
  }
  /// Left out by a UCX that does not know it.
  void prefer(const char* name, const char* value) { ucp_config_modify(config_, name, value); }
  [[nodiscard]] const ucp_config_t* get() const noexcept { return config_; }

 private:
  ucp_config_t* config_ = nullptr;
};

bool has_only_tcp(const std::string& transports) {
  if (transports == default_transports) {
    std::error_code error;
    return std::filesystem::is_empty("/sys/class/infiniband", error) || error;
  }
  return transports == "tcp" || transports == "tcp,self" || transports == "self,tcp";
}

// Over TCP, UCX copies through buffers of 8 KiB. Both ways at once, messages of 256 KiB then reach
// 0.4 of a plain connection's bandwidth, of 1 MiB 0.6; with these, 0.8 and 0.9.
void prefer_for_tcp(Settings& settings, const std::string& transports) {
  // The one must not be below the other. To UCX 1.13 a transport's settings are known by what
  // follows the transport's name; with the name it takes them, and forgets them.
  if (!is_in_environment("TCP_RX_SEG_SIZE") && !is_in_environment("TCP_TX_SEG_SIZE")) {
    settings.prefer("RX_SEG_SIZE", "512k");
    settings.prefer("TX_SEG_SIZE", "512k");
  }
  // UCX 1.13 ends the process when, of several events it has taken, the first closes the connection
  // of the second; and when a peer leaves between connect() and UCX's first words to it, unless
  // connecting does not block.
  if (!is_in_environment("TCP_MAX_POLL")) settings.prefer("MAX_POLL", "1");
  if (!is_in_environment("TCP_CONN_NB")) settings.prefer("CONN_NB", "y");
  // Up to a segment of a ring, asking the peer first costs more than it saves.
  if (has_only_tcp(transports) && !is_in_environment("RNDV_THRESH")) {
    settings.prefer("RNDV_THRESH", "1100k");
  }
}

std::string transports_for(const rondo_link_options& options) {
  if (*options.provider != '\0') return options.provider;
  if (const char* chosen = std::getenv("UCX_TLS"); chosen != nullptr) return chosen;
  return default_transports;
}

std::string route_of(const std::string& transports, const std::string& devices) {
  std::string route =
      transports == default_transports ? "any transport but shared memory" : transports;
  if (!devices.empty()) route += " over " + devices;
  return route;
}

ucp_context_h make_context(const rondo_link_options& options, const Settings& settings) {
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_REQUEST_SIZE |
                      UCP_PARAM_FIELD_REQUEST_INIT | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  params.request_size = sizeof(Message);
  params.request_init = [](void* request) { reset(*static_cast<Message*>(request)); };
  params.estimated_num_eps =
      static_cast<std::size_t>(options.peers > 0 ? options.peers : options.size);
  ucp_context_h context = nullptr;
  check(ucp_init(&params, settings.get(), &context), "no transport of UCX is usable");
  return context;
}

ucp_worker_h make_worker(ucp_context_h context) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h worker = nullptr;
  check(ucp_worker_create(context, &params, &worker), "no UCX worker");
  return worker;
}

}  // namespace

std::mutex& one_at_a_time() {
  static std::mutex mutex;
  return mutex;
}

Opened open_ucx(const rondo_link_options& options) {
  const std::scoped_lock lock(one_at_a_time());
  const Quiet quiet;
  const std::string transports = transports_for(options);
  const std::string devices = devices_of(options.device);
  Settings settings;
  settings.set("TLS", transports);
  if (!devices.empty()) settings.set("NET_DEVICES", devices);
  prefer_for_tcp(settings, transports);
  Opened opened;
  opened.error_mode = error_mode_of(transports);
  opened.route = route_of(transports, devices);
  try {
    opened.context = make_context(options, settings);
    opened.worker = make_worker(opened.context);
  } catch (const OpenError& error) {
    if (opened.context != nullptr) ucp_cleanup(opened.context);
    throw OpenError(opened.route + ": " + error.what() +
                    "; `rondo info` lists UCX's transports and devices");
  }
  return opened;
}

void close_ucx(const Opened& opened) {
  const std::scoped_lock lock(one_at_a_time());
  ucp_worker_destroy(opened.worker);
  ucp_cleanup(opened.context);
}

}  // namespace rondo::transport::ucx
