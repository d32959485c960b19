#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "report/sources.hpp"

namespace rondo::tools {

/// The page without its data, from page.html.
extern const std::string_view page_template;

/// What the page shows, as the script of page.html reads it.
[[nodiscard]] nlohmann::json page_data(const std::string& title, const ReportSources& sources);

/// One HTML file that needs no other and no network. Whatever text is in `data`, it stays text.
[[nodiscard]] std::string page_of(const nlohmann::json& data);

}  // namespace rondo::tools
