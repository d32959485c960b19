// How libfabric is loaded, a provider and a network interface are chosen, and an endpoint over them
// is opened.
//
// libfabric is not linked, so that a machine without it gets an error that says what to install. It
// lists what every provider offers over every interface. The first provider of a list of
// preferences that has an offer over the wanted interface is used.

#include "links/ofi/endpoint.hpp"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include "links/engine.hpp"
#include "links/plugin.hpp"

namespace rondo::transport::ofi {
namespace {

/// The symbols of libfabric; all else is reached through the objects that they make.
struct Library {
  decltype(&fi_getinfo) getinfo;
  decltype(&fi_freeinfo) freeinfo;
  decltype(&fi_dupinfo) dupinfo;
  decltype(&fi_fabric) fabric;
  decltype(&fi_version) version;
  decltype(&fi_strerror) strerror;
  decltype(&fi_getparams) getparams;
  decltype(&fi_freeparams) freeparams;
};

constexpr const char* file_name = "libfabric.so.1";

// libfabric reads these when it is loaded or first asked; what the user has set stays.
//
// - A library under the psm provider would take SIGSEGV, SIGINT and others from the host program.
// - A message that is too long for its receive makes ofi_rxm close the connection, and lose what
//   is under way, in two of its ways to receive: straight into the receive's memory (dyn_rbuf), and
//   in several packets (SAR). Without them messages go through its buffers up to 16 KiB, and are
//   fetched by the receiver above.
// - ofi_rxm closes the connection to a peer that is removed: the only way to cancel a send.
constexpr const char* close_removed = "FI_AV_REMOVE_CLEANUP";
constexpr std::array<std::pair<const char*, const char*>, 4> settings = {
    {{"IPATH_NO_BACKTRACE", "1"},
     {"FI_OFI_RXM_ENABLE_DYN_RBUF", "0"},
     {"FI_OFI_RXM_SAR_LIMIT", "16384"},
     {close_removed, "1"}}};

// Was libfabric loaded by other code before our settings were made? It may have read its
// environment then.
bool was_loaded_before = false;

bool is_loaded() {
  void* handle = ::dlopen(file_name, RTLD_NOW | RTLD_NOLOAD);
  if (handle != nullptr) ::dlclose(handle);
  return handle != nullptr;
}

template <typename Function>
void resolve(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (function == nullptr) {
    throw OpenError(std::string(file_name) + " has no " + name + "; update libfabric");
  }
}

Library load() {
  was_loaded_before = is_loaded() && std::getenv(close_removed) == nullptr;
  add_to_environment(settings);
  void* handle = ::dlopen(file_name, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw OpenError("libfabric cannot be loaded (" + std::string(::dlerror()) +
                    "); install it, or choose another fabric");
  }
  Library found{};
  resolve(handle, "fi_getinfo", found.getinfo);
  resolve(handle, "fi_freeinfo", found.freeinfo);
  resolve(handle, "fi_dupinfo", found.dupinfo);
  resolve(handle, "fi_fabric", found.fabric);
  resolve(handle, "fi_version", found.version);
  resolve(handle, "fi_strerror", found.strerror);
  resolve(handle, "fi_getparams", found.getparams);
  resolve(handle, "fi_freeparams", found.freeparams);
  return found;
}

// libfabric, loaded at the first call and never unloaded: its providers leave handlers behind.
// May be called by any thread.
const Library& library() {
  static const Library loaded = load();
  return loaded;
}

bool is_true(std::string_view value) {
  return value == "1" || value == "yes" || value == "true" || value == "on";
}

bool find_close_removed() {
  fi_param* parameters = nullptr;
  int count = 0;
  const Library& loaded = library();  // before the question whether it was there already
  if (was_loaded_before || loaded.getparams(&parameters, &count) != 0) return false;
  const std::span<const fi_param> all(parameters, static_cast<std::size_t>(count));
  const bool found = std::ranges::any_of(all, [](const fi_param& parameter) {
    return parameter.name == std::string_view(close_removed) && parameter.value != nullptr &&
           is_true(parameter.value);
  });
  loaded.freeparams(parameters);
  return found;
}

// Does fi_av_remove() close a connection of ofi_rxm? libfabric has to know the setting, and must
// have found it when it was loaded.
bool closes_removed_connections() {
  static const bool closes = find_close_removed();
  return closes;
}

// Tells libfabric how many ranks there are, unless the user has: providers size their queues by it.
// Only the first call counts, and only before providers are first looked for.
void expect_ranks(std::int32_t size) {
  static std::once_flag once;
  std::call_once(once, [size] {
    const std::string text = std::to_string(size);
    const std::pair<const char*, const char*> setting("FI_UNIVERSE_SIZE", text.c_str());
    add_to_environment(std::span(&setting, 1));
  });
}

constexpr std::uint32_t loopback_network = 127;

/// Its own address, if that is one of IP; libfabric's other formats say nothing here.
const sockaddr* ip_address(const fi_info& info) {
  const bool ip = info.addr_format == FI_SOCKADDR || info.addr_format == FI_SOCKADDR_IN ||
                  info.addr_format == FI_SOCKADDR_IN6;
  return ip ? static_cast<const sockaddr*>(info.src_addr) : nullptr;
}

in_addr v4_of(const sockaddr& address) {
  return reinterpret_cast<const sockaddr_in&>(address).sin_addr;
}

const in6_addr& v6_of(const sockaddr& address) {
  return reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
}

bool equal(const sockaddr& a, const sockaddr& b) {
  if (a.sa_family != b.sa_family) return false;
  if (a.sa_family == AF_INET) return v4_of(a).s_addr == v4_of(b).s_addr;
  return a.sa_family == AF_INET6 && std::memcmp(&v6_of(a), &v6_of(b), sizeof(in6_addr)) == 0;
}

/// Has the network interface `name` the address `own`?
bool has_address(const std::string& name, const sockaddr& own) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(all, &::freeifaddrs);
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr != nullptr && name == entry->ifa_name && equal(*entry->ifa_addr, own)) {
      return true;
    }
  }
  return false;
}

bool is(const char* name, const std::string& wanted) { return name != nullptr && wanted == name; }

int reach_v4(const sockaddr& address) {
  constexpr unsigned first_byte = 24;
  return ntohl(v4_of(address).s_addr) >> first_byte == loopback_network ? 1 : 4;
}

int reach_v6(const sockaddr& address) {
  const in6_addr& own = v6_of(address);
  if (IN6_IS_ADDR_LOOPBACK(&own)) return 0;
  return IN6_IS_ADDR_LINKLOCAL(&own) ? 2 : 3;
}

/// Does `info` go over `device`: the name of a domain (lo, mlx5_0), of a network card, or of the
/// network interface that has its address?
bool is_over(const fi_info& info, const std::string& device) {
  if (is(info.domain_attr->name, device)) return true;
  const bool has_card = info.nic != nullptr && info.nic->device_attr != nullptr;
  if (has_card && is(info.nic->device_attr->name, device)) return true;
  const sockaddr* own = ip_address(info);
  return own != nullptr && has_address(device, *own);
}

/// Orders offers of one provider: loopback reaches least, then link-local addresses, then IPv6.
int reach(const fi_info& info) {
  const sockaddr* own = ip_address(info);
  if (own == nullptr) return 4;
  return own->sa_family == AF_INET ? reach_v4(*own) : reach_v6(*own);
}

// Best first. In newer libfabrics tcp needs no ofi_rxm. Never shm: ranks of one node have better.
constexpr const char* preference[] = {"cxi",  "verbs;ofi_rxm", "efa",         "psm3", "opx",
                                      "psm2", "gni",           "tcp;ofi_rxm", "tcp"};

std::uint32_t api_version() { return std::min(FI_VERSION(1U, 15U), library().version()); }

std::string version_text() {
  const std::uint32_t version = library().version();
  return std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

Info make_hints(const std::string& provider, bool directed) {
  Info hints(library().dupinfo(nullptr));
  if (hints == nullptr) throw OpenError("out of memory");
  hints->caps = FI_TAGGED | (directed ? FI_DIRECTED_RECV : 0);
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->tx_attr->msg_order = FI_ORDER_SAS;
  hints->rx_attr->msg_order = FI_ORDER_SAS;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->av_type = FI_AV_TABLE;
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  // fi_freeinfo() frees it.
  if (!provider.empty()) hints->fabric_attr->prov_name = ::strdup(provider.c_str());
  return hints;
}

/// The offers of libfabric for `provider`, or for all; null when there are none.
Info find(const std::string& provider, bool directed) {
  const Info hints = make_hints(provider, directed);
  fi_info* found = nullptr;
  const int result =
      library().getinfo(api_version(), nullptr, nullptr, /*flags=*/0, hints.get(), &found);
  if (result != 0 && result != -FI_ENODATA) {
    throw OpenError(std::string("libfabric's fi_getinfo failed: ") + library().strerror(-result));
  }
  return Info(found);
}

std::string_view provider_of(const fi_info& info) { return info.fabric_attr->prov_name; }

std::vector<const fi_info*> offers(const Info& list, std::string_view provider) {
  std::vector<const fi_info*> result;
  for (const fi_info* info = list.get(); info != nullptr; info = info->next) {
    if (provider_of(*info) == provider) result.push_back(info);
  }
  return result;
}

void append_once(std::vector<std::string>& list, std::string_view item) {
  if (std::ranges::find(list, item) == list.end()) list.emplace_back(item);
}

std::string join(const std::vector<std::string>& items) {
  std::string result;
  for (const std::string& item : items) result += (result.empty() ? "" : ", ") + item;
  return result.empty() ? "none" : result;
}

/// Names of all usable providers, the preferred first.
std::vector<std::string> provider_names(const Info& list) {
  std::vector<std::string> names;
  for (const char* name : preference) {
    if (!offers(list, name).empty()) names.emplace_back(name);
  }
  for (const fi_info* info = list.get(); info != nullptr; info = info->next) {
    if (provider_of(*info) != "shm") append_once(names, provider_of(*info));
  }
  return names;
}

std::vector<std::string> interface_names(const std::vector<const fi_info*>& infos) {
  std::vector<std::string> names;
  for (const fi_info* info : infos) append_once(names, info->domain_attr->name);
  return names;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) items.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

/// The first of `infos` that reaches farthest; null when there is none.
const fi_info* farthest(const std::vector<const fi_info*>& infos) {
  const auto nearer = [](const fi_info* a, const fi_info* b) { return reach(*a) < reach(*b); };
  return infos.empty() ? nullptr : *std::ranges::max_element(infos, nearer);
}

/// The best offer over the first of `devices` that there is; null when there is none.
const fi_info* pick(const std::vector<const fi_info*>& infos,
                    const std::vector<std::string>& devices) {
  if (devices.empty()) return farthest(infos);
  for (const std::string& device : devices) {
    std::vector<const fi_info*> matches;
    std::ranges::copy_if(infos, std::back_inserter(matches),
                         [&](const fi_info* info) { return is_over(*info, device); });
    if (!matches.empty()) return farthest(matches);
  }
  return nullptr;
}

Choice copy_of(const fi_info& info, bool directed) {
  Info copy(library().dupinfo(&info));
  if (copy == nullptr) throw OpenError("out of memory");
  return {std::move(copy), directed};
}

/// `provider` over one of `devices`; without info when that does not exist.
Choice try_provider(const std::string& provider, const std::vector<std::string>& devices) {
  const Info list = find(provider, /*directed=*/false);
  const fi_info* info = pick(offers(list, provider), devices);
  if (info == nullptr) return {};
  const std::uint64_t format = info->ep_attr->mem_tag_format;
  if (format == 0 || std::countl_zero(format) == 0) return copy_of(*info, false);

  const Info directed = find(provider, /*directed=*/true);
  info = pick(offers(directed, provider), devices);
  return info == nullptr ? Choice{} : copy_of(*info, true);
}

std::vector<std::string> candidates(const std::string& provider) {
  if (provider.empty()) return {std::begin(preference), std::end(preference)};
  if (provider == "tcp") return {"tcp;ofi_rxm", "tcp"};
  if (provider == "verbs") return {"verbs;ofi_rxm"};
  if (provider == "shm") {
    throw OpenError(
        "the libfabric provider \"shm\" is not used: it does not leave the node; "
        "choose another, or fabric = \"auto\"");
  }
  return {provider};
}

// Says whether the provider or only the interface is missing, and what there is instead.
[[noreturn]] void report_missing(const std::string& provider, const std::string& devices) {
  const Info list = find("", /*directed=*/false);
  const std::vector<std::string> names = provider_names(list);
  std::vector<const fi_info*> infos;
  for (const std::string& name : candidates(provider)) {
    for (const fi_info* info : offers(list, name)) infos.push_back(info);
  }
  if (infos.empty()) {
    const std::string wanted =
        provider.empty() ? "provider to use" : "provider \"" + provider + "\"";
    throw OpenError("libfabric " + version_text() + " has no " + wanted +
                    " on this machine; there are: " + join(names));
  }
  throw OpenError("libfabric reaches no interface \"" + devices + "\"" +
                  (provider.empty() ? "" : " by provider \"" + provider + "\"") +
                  "; there are: " + join(interface_names(infos)));
}

Choice choose_provider(const std::string& provider, const std::string& devices) {
  const std::vector<std::string> wanted = split(devices);
  for (const std::string& name : candidates(provider)) {
    Choice choice = try_provider(name, wanted);
    if (choice.info != nullptr) return choice;
  }
  report_missing(provider, devices);
}

/// `result` of making `what`, 0 or negative.
void check(int result, const Endpoint& endpoint, const std::string& what) {
  if (result >= 0) return;
  throw OpenError("libfabric's " + endpoint.provider() + " over " +
                  endpoint.info().domain_attr->name + " cannot make " + what + ": " +
                  library().strerror(-result));
}

void open_queue(Endpoint& endpoint) {
  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_MSG;
  attributes.wait_obj = FI_WAIT_FD;
  fid_cq* cq = nullptr;
  int result = fi_cq_open(endpoint.domain.get(), &attributes, &cq, nullptr);
  if (result == 0) {
    endpoint.cq.reset(cq);
    if (fi_control(&cq->fid, FI_GETWAIT, &endpoint.wait_descriptor) == 0) return;
    endpoint.wait_descriptor = -1;
    endpoint.cq.reset();
  }
  // Not all can: no rank sleeps on this link then.
  attributes.wait_obj = FI_WAIT_NONE;
  result = fi_cq_open(endpoint.domain.get(), &attributes, &cq, nullptr);
  check(result, endpoint, "a completion queue");
  endpoint.cq.reset(cq);
}

void open_addresses(Endpoint& endpoint, int size) {
  fi_av_attr attributes{};
  attributes.type = FI_AV_TABLE;
  attributes.count = static_cast<std::size_t>(size);
  fid_av* av = nullptr;
  check(fi_av_open(endpoint.domain.get(), &attributes, &av, nullptr), endpoint,
        "a table of addresses");
  endpoint.av.reset(av);
}

std::string name_of(const Endpoint& endpoint) {
  constexpr std::size_t longest = 512;
  std::string name(longest, '\0');
  std::size_t bytes = name.size();
  check(fi_getname(&endpoint.ep->fid, name.data(), &bytes), endpoint, "an address");
  name.resize(bytes);
  return name;
}

// An endpoint must know its queue and its addresses before it is enabled, and has a name after.
void enable(Endpoint& endpoint) {
  fid_ep* ep = nullptr;
  check(fi_endpoint(endpoint.domain.get(), endpoint.choice.info.get(), &ep, nullptr), endpoint,
        "an endpoint");
  endpoint.ep.reset(ep);
  check(fi_ep_bind(ep, &endpoint.av->fid, 0), endpoint, "an endpoint with addresses");
  check(fi_ep_bind(ep, &endpoint.cq->fid, FI_TRANSMIT | FI_RECV), endpoint,
        "an endpoint with a completion queue");
  check(fi_enable(ep), endpoint, "an enabled endpoint");
  endpoint.name = name_of(endpoint);
}

}  // namespace

const char* error_text(std::int32_t error) {
  switch (error) {
    case error_bad_address:
      return "the peer's address is not one of a libfabric link";
    case error_other_library:
      return "the peer chose another libfabric provider; choose one for all ranks";
    default:
      return library().strerror(error);
  }
}

void FreeInfo::operator()(fi_info* info) const noexcept { library().freeinfo(info); }

bool Endpoint::closes_connections() const {
  return provider().ends_with(";ofi_rxm") && closes_removed_connections();
}

Endpoint open_endpoint(const LinkOptions& options) {
  expect_ranks(options.size);
  Endpoint endpoint;
  endpoint.choice = choose_provider(options.provider, options.device);
  fi_info* info = endpoint.choice.info.get();
  fid_fabric* fabric = nullptr;
  check(library().fabric(info->fabric_attr, &fabric, nullptr), endpoint, "a fabric");
  endpoint.fabric.reset(fabric);
  fid_domain* domain = nullptr;
  check(fi_domain(fabric, info, &domain, nullptr), endpoint, "a domain");
  endpoint.domain.reset(domain);
  open_queue(endpoint);
  open_addresses(endpoint, options.size);
  enable(endpoint);
  return endpoint;
}

std::string describe_providers() {
  std::string text = "version " + version_text() + "\n";
  const Info list = find("", /*directed=*/false);
  for (const std::string& name : provider_names(list)) {
    text += "provider " + name + " over " + join(interface_names(offers(list, name))) + "\n";
  }
  return text;
}

}  // namespace rondo::transport::ofi
