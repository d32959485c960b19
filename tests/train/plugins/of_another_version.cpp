// A scheme plug-in that another release was compiled with; nothing of it but its version may be
// used.

#include <rondo/sync/scheme_plugin.hpp>

const rondo::sync::SchemePlugin rondo_scheme_plugin{.version =
                                                        rondo::sync::scheme_plugin_version + 1};
