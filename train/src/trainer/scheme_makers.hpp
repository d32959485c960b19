#pragma once

#include <memory>
#include <string>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/update_scheme.hpp>

#include "trainer/update.hpp"

namespace rondo::train {

// From [update] to each scheme's options: what make_scheme() chooses from.

using Scheme = std::unique_ptr<sync::UpdateScheme>;
using SharedOptimizer = std::shared_ptr<sync::Optimizer>;

/// "KEY: "VALUE" is not known; there are: KNOWN", for values that no file can have.
[[noreturn]] void refuse_choice(const std::string& key, const std::string& value,
                                const std::string& known);

/// k_step and hierarchical.
[[nodiscard]] Scheme make_averaging(const Experiment& experiment, SchemeParts& parts,
                                    const SharedOptimizer& optimizer);

[[nodiscard]] Scheme make_lazy(const Experiment& experiment, SchemeParts& parts,
                               const SharedOptimizer& optimizer);

[[nodiscard]] Scheme make_cyclic(const Experiment& experiment, SchemeParts& parts,
                                 const SharedOptimizer& optimizer);

}  // namespace rondo::train
