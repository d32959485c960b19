// UCX itself: its settings, its context and worker, what it can reach, what it logs, and the
// addresses of its workers.
//
// UCX reads its settings from the environment; some defaults are replaced here unless the user has
// set them. UCX prints errors; here they are kept, so that an OpenError can say them.

#include "links/ucx/context.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <ucs/debug/log_def.h>
#include <uct/api/uct.h>

#include "links/engine.hpp"

namespace rondo::transport::ucx {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t log_bytes = 512;
// Counted at every call of the link: found without a call, at the cost of 4 of the bytes that
// libraries loaded late have for such variables.
[[gnu::tls_model("initial-exec")]] thread_local int depth = 0;
thread_local char logged[log_bytes] = "";

// UCX may be the host program's, too: what it logs outside of the link is printed as ever.
ucs_log_func_rc_t keep(const char* /*file*/, unsigned /*line*/, const char* /*function*/,
                       ucs_log_level_t level, const ucs_log_component_config_t* /*component*/,
                       const char* format, va_list arguments) {
  if (depth == 0) return UCS_LOG_FUNC_RC_CONTINUE;
  if (level <= UCS_LOG_LEVEL_WARN) {
    va_list copy;
    va_copy(copy, arguments);
    std::vsnprintf(logged, sizeof logged, format, copy);
    va_end(copy);
  }
  return std::getenv("UCX_LOG_LEVEL") == nullptr ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

// Held while UCX is opened, closed or asked: its lists are the process'.
std::mutex& one_at_a_time() {
  static std::mutex mutex;
  return mutex;
}

// Are all of the comma-separated devices network interfaces? An RDMA port has a colon, as in
// "mlx5_0:1". Without any device UCX chooses, from what the machine has.
bool are_interfaces(const std::string& devices) {
  std::error_code error;
  if (devices.empty()) return fs::is_empty("/sys/class/infiniband", error) || error;
  return devices.find(':') == std::string::npos;
}

// UCX is for other nodes; inside one, ranks have a link of their own.
constexpr const char* default_transports = "^posix,sysv,cma,knem,xpmem";

// Throws OpenError, with what UCX has logged about it.
void check(ucs_status_t status, const std::string& what) {
  if (status == UCS_OK) return;
  const std::string logged_text = last_log_message();
  throw OpenError(what + ": " + ucs_status_string(status) +
                  (logged_text.empty() ? "" : ": " + logged_text));
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
          std::string("UCX does not accept ") + name + "=" + value);
  }
  /// Left out by a UCX that does not know it.
  void prefer(const char* name, const char* value) { ucp_config_modify(config_, name, value); }
  [[nodiscard]] const ucp_config_t* get() const noexcept { return config_; }

 private:
  ucp_config_t* config_ = nullptr;
};

bool has_only_tcp(const std::string& transports, const std::string& devices) {
  if (transports == default_transports) return are_interfaces(devices);
  return transports == "tcp" || transports == "tcp,self" || transports == "self,tcp";
}

// Over TCP, UCX copies through buffers of 8 KiB. Both ways at once, messages of 256 KiB then reach
// 0.4 of a plain connection's bandwidth, of 1 MiB 0.6; with these, 0.8 and 0.9.
void prefer_for_tcp(Settings& settings, const std::string& transports, const std::string& devices) {
  // The first must not be below the second. To UCX 1.13 a transport's settings are known by what
  // follows the transport's name; with the name it accepts them, and forgets them.
  if (!is_in_environment("TCP_RX_SEG_SIZE") && !is_in_environment("TCP_TX_SEG_SIZE")) {
    settings.prefer("RX_SEG_SIZE", "512k");
    settings.prefer("TX_SEG_SIZE", "512k");
  }
  // UCX 1.13 ends the process when, of several events it has read, the first closes the connection
  // of the second; and when a peer leaves between connect() and UCX's first message to it, unless
  // connecting does not block.
  if (!is_in_environment("TCP_MAX_POLL")) settings.prefer("MAX_POLL", "1");
  if (!is_in_environment("TCP_CONN_NB")) settings.prefer("CONN_NB", "y");
  // Up to a segment of a ring, asking the peer first costs more than it saves.
  if (has_only_tcp(transports, devices) && !is_in_environment("RNDV_THRESH")) {
    settings.prefer("RNDV_THRESH", "1100k");
  }
}

// A long message goes over all rails at once; UCX itself would take two.
void prefer_for_rails(Settings& settings, const std::string& devices) {
  constexpr std::ptrdiff_t most_of_ucx = 4;
  const auto rails = std::min(1 + std::ranges::count(devices, ','), most_of_ucx);
  if (rails < 2 || is_in_environment("MAX_RNDV_RAILS")) return;
  settings.prefer("MAX_RNDV_RAILS", std::to_string(rails).c_str());
}

std::string transports_for(const LinkOptions& options) {
  if (!options.provider.empty()) return options.provider;
  if (const char* chosen = std::getenv("UCX_TLS"); chosen != nullptr) return chosen;
  return default_transports;
}

// "tcp over eth0", "verbs over mlx5_0:1": by default UCX takes what a device has.
std::string route_of(const std::string& transports, const std::string& devices) {
  std::string route = transports;
  if (transports == default_transports) {
    route = devices.empty()           ? "any transport but shared memory"
            : are_interfaces(devices) ? "tcp"
                                      : "verbs";
  }
  return devices.empty() ? route : route + " over " + devices;
}

ucp_context_h make_context(const LinkOptions& options, const Settings& settings) {
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
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

// Transports, each with the devices that it reaches.
using Providers = std::map<std::string, std::set<std::string>>;

// UCX lists what it can reach by component, memory domain of it, and transport over it.
void add_resources(uct_component_h component, const char* domain, Providers& providers) {
  uct_md_config_t* config = nullptr;
  if (uct_md_config_read(component, nullptr, nullptr, &config) != UCS_OK) return;
  uct_md_h md = nullptr;
  const ucs_status_t opened = uct_md_open(component, domain, config, &md);
  uct_config_release(config);
  if (opened != UCS_OK) return;
  uct_tl_resource_desc_t* list = nullptr;
  unsigned count = 0;
  if (uct_md_query_tl_resources(md, &list, &count) == UCS_OK) {
    for (const auto& resource : std::span(list, count)) {
      providers[resource.tl_name].insert(resource.dev_name);
    }
    uct_release_tl_resource_list(list);
  }
  uct_md_close(md);
}

void add_component(uct_component_h component, Providers& providers) {
  uct_component_attr_t attributes{};
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
  if (uct_component_query(component, &attributes) != UCS_OK) return;
  std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  attributes.md_resources = domains.data();
  if (uct_component_query(component, &attributes) != UCS_OK) return;
  for (const auto& domain : domains) add_resources(component, domain.md_name, providers);
}

}  // namespace

const char* error_text(std::int32_t error) {
  switch (error) {
    case error_bad_address:
      return "not the address of a ucx link";
    case error_other_library:
      return "the rank has another major version of UCX; install the same on all nodes";
    case UCS_ERR_UNREACHABLE:
      return "UCX finds no way to the rank (were other transports or interfaces chosen there?)";
    default:
      return ucs_status_string(static_cast<ucs_status_t>(error));
  }
}

UcxContext::UcxContext(const LinkOptions& options) {
  const std::scoped_lock lock(one_at_a_time());
  const LogCapture capture;
  const std::string transports = transports_for(options);
  const std::string& devices = options.device;
  Settings settings;
  settings.set("TLS", transports);
  if (!devices.empty()) settings.set("NET_DEVICES", devices);
  prefer_for_tcp(settings, transports, devices);
  prefer_for_rails(settings, devices);
  error_mode = error_mode_of(transports);
  route = route_of(transports, devices);
  try {
    context = make_context(options, settings);
    worker = make_worker(context);
  } catch (const OpenError& error) {
    if (context != nullptr) ucp_cleanup(context);
    throw OpenError(route + ": " + error.what() +
                    "; `rondo info` lists UCX's transports and devices");
  }
}

UcxContext::~UcxContext() {
  if (worker == nullptr) return;
  const std::scoped_lock lock(one_at_a_time());
  const LogCapture capture;
  ucp_worker_destroy(worker);
  ucp_cleanup(context);
}

// They stay reachable, so that checks for leaks know that they were not forgotten.
void UcxContext::leave() {
  static auto& left = *new std::vector<std::pair<ucp_context_h, ucp_worker_h>>();
  const std::scoped_lock lock(one_at_a_time());
  left.emplace_back(std::exchange(context, nullptr), std::exchange(worker, nullptr));
}

std::string describe_ucx() {
  const std::scoped_lock lock(one_at_a_time());
  const LogCapture capture;
  Providers providers;
  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (uct_query_components(&components, &count) == UCS_OK) {
    for (uct_component_h component : std::span(components, count)) {
      add_component(component, providers);
    }
    uct_release_component_list(components);
  }
  std::string text = std::string("version ") + ucp_get_version_string() + "\n";
  for (const auto& [transport, devices] : providers) {
    text += "provider " + transport + " over ";
    for (const auto& device : devices) text += (device == *devices.begin() ? "" : ", ") + device;
    text += "\n";
  }
  return text;
}

// The handler is UCX's for ever: it does nothing where no LogCapture exists.
LogCapture::LogCapture() noexcept {
  static const bool installed = [] {
    ucs_log_push_handler(keep);
    return true;
  }();
  static_cast<void>(installed);
  ++depth;
}

LogCapture::~LogCapture() { --depth; }

std::string last_log_message() {
  std::string text = logged;
  logged[0] = '\0';
  return text;
}

namespace {

// Little endian, as UCX's own addresses: nodes of unlike byte order cannot talk anyway.
struct Head {
  char mark[4] = {'r', 'u', 'c', 'x'};
  std::uint32_t major_version = 0;
  std::uint64_t worker_bytes = 0;
  std::uint64_t check = 0;
};

// FNV-1a: an address that was cut or mixed up must not reach UCX.
std::uint64_t hash_of(std::span<const std::byte> data) noexcept {
  std::uint64_t hash = 14'695'981'039'346'656'037U;
  for (const std::byte byte : data) {
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 1'099'511'628'211U;
  }
  return hash;
}

Head head_of(std::span<const std::byte> worker) noexcept {
  Head head;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_get_version(&head.major_version, &minor, &release);
  head.worker_bytes = worker.size();
  head.check = hash_of(worker);
  return head;
}

}  // namespace

std::string pack_address(std::span<const std::byte> worker) {
  const Head head = head_of(worker);
  std::string address(reinterpret_cast<const char*>(&head), sizeof head);
  address.append(reinterpret_cast<const char*>(worker.data()), worker.size());
  return address;
}

// UCX trusts what it gets, so everything is checked before.
UnpackedAddress unpack_address(std::span<const std::byte> address) {
  Head head;
  if (address.size() <= sizeof head) return {.worker = {}, .error = error_bad_address};
  std::memcpy(&head, address.data(), sizeof head);
  const auto worker = address.subspan(sizeof head);
  const Head expected = head_of(worker);
  if (std::memcmp(head.mark, expected.mark, sizeof head.mark) != 0 ||
      head.worker_bytes != expected.worker_bytes || head.check != expected.check) {
    return {.worker = {}, .error = error_bad_address};
  }
  if (head.major_version != expected.major_version) {
    return {.worker = {}, .error = error_other_library};
  }
  return {.worker{reinterpret_cast<const char*>(worker.data()), worker.size()}, .error = 0};
}

}  // namespace rondo::transport::ucx
