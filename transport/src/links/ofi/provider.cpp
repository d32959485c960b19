#include "links/ofi/provider.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "links/ofi/errors.hpp"
#include "links/ofi/interface.hpp"
#include "links/ofi/library.hpp"

namespace rondo::transport::ofi {
namespace {

using std::string_literals::operator""s;

// Best first. Of newer libfabrics tcp needs no ofi_rxm. Never shm: ranks of one node have better.
constexpr const char* preference[] = {"cxi",  "verbs;ofi_rxm", "efa",         "psm3", "opx",
                                      "psm2", "gni",           "tcp;ofi_rxm", "tcp"};

std::uint32_t api_version() { return std::min(FI_VERSION(1U, 15U), library().version()); }

std::string version_text() {
  const std::uint32_t version = library().version();
  return std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

Info make_hints(const std::string& provider, bool directed) {
  Info hints(library().dupinfo(nullptr));
  if (hints == nullptr) throw Failure(FI_ENOMEM, "out of memory");
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

/// What libfabric offers of `provider`, or of all; null when nothing.
Info find(const std::string& provider, bool directed) {
  const Info hints = make_hints(provider, directed);
  fi_info* found = nullptr;
  const int result =
      library().getinfo(api_version(), nullptr, nullptr, /*flags=*/0, hints.get(), &found);
  if (result != 0 && result != -FI_ENODATA) {
    throw Failure(-result, "libfabric's fi_getinfo failed: "s + library().strerror(-result));
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
  if (copy == nullptr) throw Failure(FI_ENOMEM, "out of memory");
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
    throw Failure(FI_EINVAL,
                  "the libfabric provider \"shm\" is not used: it does not leave the node; "
                  "choose another, or fabric = \"auto\"");
  }
  return {provider};
}

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
    throw Failure(FI_ENODATA, "libfabric " + version_text() + " has no " + wanted +
                                  " on this machine; there are: " + join(names));
  }
  throw Failure(FI_ENODATA, "libfabric reaches no interface \"" + devices + "\"" +
                                (provider.empty() ? "" : " by provider \"" + provider + "\"") +
                                "; there are: " + join(interface_names(infos)));
}

}  // namespace

void FreeInfo::operator()(fi_info* info) const noexcept { library().freeinfo(info); }

Choice choose_provider(const std::string& provider, const std::string& devices) {
  const std::vector<std::string> wanted = split(devices);
  for (const std::string& name : candidates(provider)) {
    Choice choice = try_provider(name, wanted);
    if (choice.info != nullptr) return choice;
  }
  report_missing(provider, devices);
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
