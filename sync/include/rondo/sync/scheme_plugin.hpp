#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rondo/sync/export.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/replica.hpp>
#include <rondo/sync/update_scheme.hpp>

namespace rondo::sync {

/// The settings of a plug-in's scheme, beside the replica and the optimizer: names and texts, of
/// update.plugin_settings.
class RONDO_SYNC_API SchemeSettings {
 public:
  SchemeSettings() = default;
  explicit SchemeSettings(std::map<std::string, std::string> values) : values_(std::move(values)) {}

  /// The text under that name, or `otherwise`.
  [[nodiscard]] std::string text(std::string_view name, std::string_view otherwise) const;
  /// The number under that name, or `otherwise`. Throws std::invalid_argument, which begins with
  /// the name, when the text is not a number.
  [[nodiscard]] double number(std::string_view name, double otherwise) const;

  /// Names that were given but never asked for: misspelt ones.
  [[nodiscard]] std::vector<std::string> never_asked_for() const;
  /// Names that were asked for.
  [[nodiscard]] const std::set<std::string, std::less<>>& asked_for() const noexcept {
    return asked_for_;
  }

 private:
  std::map<std::string, std::string> values_;
  mutable std::set<std::string, std::less<>> asked_for_;
};

/// A plug-in and the program that loads it share C++ classes, so both must have the same version.
/// It is raised with the ABI of librondo-sync.
inline constexpr std::uint32_t scheme_plugin_version = 2;

/// An update scheme in a library of its own, which `rondo train` loads (update.plugin). The library
/// is linked with librondo-sync and defines one object:
///
///     const rondo::sync::SchemePlugin rondo_scheme_plugin{.make = &make_mine};
///
/// `make` is called on all ranks together, as TrainerOptions::make_scheme is, and may throw.
struct SchemePlugin {
  std::uint32_t version = scheme_plugin_version;  // stays the first member for ever
  std::unique_ptr<UpdateScheme> (*make)(const Replica& replica,
                                        const std::shared_ptr<Optimizer>& optimizer,
                                        const SchemeSettings& settings) = nullptr;
};

}  // namespace rondo::sync

extern "C" __attribute__((visibility("default")))
const rondo::sync::SchemePlugin rondo_scheme_plugin;
