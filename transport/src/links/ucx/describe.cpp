// What there is, for `rondo info`.

#include <uct/api/uct.h>

#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "links/ucx/open.hpp"
#include "links/ucx/quiet.hpp"

namespace rondo::transport::ucx {
namespace {

using Providers = std::map<std::string, std::set<std::string>>;

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

std::string describe_ucx() {
  const std::scoped_lock lock(one_at_a_time());
  const Quiet quiet;
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

}  // namespace rondo::transport::ucx
