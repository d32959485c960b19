// The plug-in librondo-pmix.so: one exchange through the key-value space of PMIx.
//
// Rank 0 publishes a text, a fence collects what was published, and the other ranks get it. Init
// and finalize enclose the exchange: nothing of PMIx, such as its progress thread, is left when the
// World begins, and the launcher judges the process by its exit status alone.

#include "bootstrap/pmix/plugin.hpp"

#include <pmix.h>

#include <stdexcept>
#include <string>

namespace rondo::transport::bootstrap {
namespace {

constexpr const char* key = "rondo.store";

void check(pmix_status_t status, const char* what) {
  if (status == PMIX_SUCCESS) return;
  throw std::runtime_error(std::string(what) + " failed: " + PMIx_Error_string(status));
}

// Between PMIx_Init and PMIx_Finalize.
class Session {
 public:
  Session() { check(PMIx_Init(&self_, nullptr, 0), "PMIx_Init"); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { PMIx_Finalize(nullptr, 0); }

  [[nodiscard]] const pmix_proc_t& self() const noexcept { return self_; }

  void publish(std::string text) const {
    pmix_value_t value;
    PMIX_VALUE_CONSTRUCT(&value);
    value.type = PMIX_STRING;
    value.data.string = text.data();  // copied by the call
    check(PMIx_Put(PMIX_GLOBAL, key, &value), "PMIx_Put");
    check(PMIx_Commit(), "PMIx_Commit");
  }

  // Returns when all ranks have come, with what they published.
  void fence(int seconds) const {
    pmix_proc_t all;
    PMIX_PROC_CONSTRUCT(&all);
    PMIX_LOAD_PROCID(&all, self_.nspace, PMIX_RANK_WILDCARD);
    bool collect = true;
    pmix_info_t options[2];
    PMIX_INFO_LOAD(&options[0], PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    PMIX_INFO_LOAD(&options[1], PMIX_TIMEOUT, &seconds, PMIX_INT);
    const pmix_status_t status = PMIx_Fence(&all, 1, options, 2);
    PMIX_INFO_DESTRUCT(&options[0]);
    PMIX_INFO_DESTRUCT(&options[1]);
    check(status, "PMIx_Fence");
  }

  [[nodiscard]] std::string text_of_rank_0() const {
    pmix_proc_t first;
    PMIX_PROC_CONSTRUCT(&first);
    PMIX_LOAD_PROCID(&first, self_.nspace, 0);
    pmix_value_t* value = nullptr;
    check(PMIx_Get(&first, key, nullptr, 0, &value), "PMIx_Get");
    std::string text = value->type == PMIX_STRING ? value->data.string : "";
    PMIX_VALUE_RELEASE(value);
    return text;
  }

 private:
  pmix_proc_t self_ = {};
};

std::string exchange_texts(int rank, const char* mine, int deadline_seconds) {
  const Session session;
  if (session.self().rank != static_cast<pmix_rank_t>(rank)) {
    throw std::runtime_error("PMIx_Init found no server, and calls this process rank " +
                             std::to_string(session.self().rank));
  }
  if (rank == 0) session.publish(mine);
  session.fence(deadline_seconds);
  return session.text_of_rank_0();
}

const char* exchange(int rank, const char* mine, int deadline_seconds, const char** problem) {
  static std::string text;
  try {
    text = exchange_texts(rank, mine, deadline_seconds);
    return text.c_str();
  } catch (const std::exception& error) {
    text = error.what();
    *problem = text.c_str();
    return nullptr;
  }
}

}  // namespace

extern "C" const PmixPlugin rondo_pmix_plugin = {.release = RONDO_VERSION, .exchange = exchange};

}  // namespace rondo::transport::bootstrap
