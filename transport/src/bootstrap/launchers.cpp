// Which launcher started this process, by the variables that it has set.
//
// Each launcher has a function that reads its variables into a claim: "rank 1 of 4". One process
// may have several. mpirun and mpiexec start their daemons by srun, so the claims of Slurm's own
// step count only where no other launcher makes one; torchrun's workers are started last, whatever
// started torchrun. All other claims must be equal: a variable that is left over from another job
// would otherwise make a job of the wrong size, and no error would say so.

#include "bootstrap/launchers.hpp"

#include <algorithm>
#include <cstdint>

#include <rondo/transport/error.hpp>

namespace rondo::transport {
namespace bootstrap {
namespace {

[[noreturn]] void refuse_launcher(const std::string& what) {
  throw Error(Errc::bootstrap_failed, "bootstrap: " + what);
}

struct Claim : Launcher {
  bool by_slurm = false;  // of a step: the launcher is srun
};

// The rank and the size that two variables tell; nothing unless both are set.
std::optional<Claim> read_claim(Source source, const std::string& launcher, const char* rank_name,
                                const char* size_name) {
  const auto rank = variable(rank_name);
  const auto size = variable(size_name);
  if (!rank || !size) return std::nullopt;
  Claim claim;
  claim.source = source;
  claim.launcher = launcher;
  claim.size = number(size_name, *size, 1);
  claim.rank = number(rank_name, *rank, 0);
  claim.said = std::string(rank_name) + "=" + *rank + " and " + size_name + "=" + *size;
  if (claim.rank >= claim.size) refuse_launcher(claim.said + " make no sense: ranks count from 0");
  return claim;
}

// Rank and number of ranks on this host, if both are told.
void read_local(Claim& claim, const char* rank_name, const char* size_name) {
  const auto rank = variable(rank_name);
  const auto size = variable(size_name);
  if (!rank || !size) return;
  claim.local_rank = number(rank_name, *rank, 0);
  claim.local_size = number(size_name, *size, 1);
}

// A batch script and an interactive shell have special numbers instead of a step's.
bool in_slurm_step() {
  constexpr std::uint64_t first_special = 0xFFFF'FFF0U;
  const auto step = variable("SLURM_STEP_ID");
  return step && variable("SLURM_JOB_ID") &&
         parse_number(*step).value_or(first_special) < first_special;
}

std::optional<Claim> slurm_claim() {
  if (!in_slurm_step()) return std::nullopt;
  auto claim = read_claim(Source::slurm, "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
  if (!claim) return std::nullopt;
  claim->by_slurm = true;
  const auto counts = expand_task_counts(variable("SLURM_STEP_TASKS_PER_NODE").value_or(""));
  const auto node = parse_number(variable("SLURM_NODEID").value_or(""));
  const auto local = parse_number(variable("SLURM_LOCALID").value_or(""));
  if (node && local && *node < counts.size()) {
    claim->local_rank = static_cast<int>(*local);
    claim->local_size = counts[*node];
  }
  return claim;
}

// Is `claim` about the same ranks as the Slurm step? Then srun made it.
bool same_ranks(const Claim& claim, const std::optional<Claim>& slurm) {
  return slurm && claim.rank == slurm->rank && claim.size == slurm->size;
}

void set_by_slurm(Claim& claim, const std::optional<Claim>& slurm) {
  claim.by_slurm = true;
  claim.launcher = "srun";
  claim.local_rank = slurm->local_rank;
  claim.local_size = slurm->local_size;
}

std::optional<Claim> pmix_claim(const std::optional<Claim>& slurm) {
  const bool open_mpi = variable("OMPI_COMM_WORLD_SIZE").has_value();
  const bool pmix = variable("PMIX_RANK") && variable("PMIX_NAMESPACE");
  if (open_mpi) {
    auto claim = read_claim(Source::pmix, "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
    if (claim && claim->size > 1 && !pmix) {
      refuse_launcher(
          claim->said +
          " say that mpirun started this process, but PMIX_RANK is not set; use an mpirun with "
          "PMIx (Open MPI 4 or later), or set RONDO_COORDINATOR, RONDO_RANK and RONDO_SIZE");
    }
    if (claim) read_local(*claim, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
    return claim;
  }
  if (!pmix) return std::nullopt;
  // srun's size stands in Slurm's variables; PMIx itself has no variable for it.
  auto claim = read_claim(Source::pmix, "srun", "PMIX_RANK", "SLURM_STEP_NUM_TASKS");
  if (claim && same_ranks(*claim, slurm)) {
    set_by_slurm(*claim, slurm);
    return claim;
  }
  refuse_launcher(
      "PMIX_RANK is set, but no variable of mpirun or srun says how many ranks there are; set "
      "RONDO_COORDINATOR, RONDO_RANK and RONDO_SIZE, or unset PMIX_RANK");
}

std::optional<Claim> pmi_claim(const std::optional<Claim>& slurm) {
  auto claim = read_claim(Source::pmi, "mpiexec", "PMI_RANK", "PMI_SIZE");
  if (!claim) return std::nullopt;
  if (claim->size > 1 && !variable("PMI_FD")) {
    refuse_launcher(
        claim->said +
        " say that this is one of several ranks, but PMI_FD is not set; start the ranks by "
        "mpiexec without -pmi-port, or unset PMI_RANK and PMI_SIZE");
  }
  read_local(*claim, "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  if (same_ranks(*claim, slurm)) set_by_slurm(*claim, slurm);
  return claim;
}

std::optional<Claim> torchrun_claim() {
  auto claim = read_claim(Source::torchrun, "torchrun", "RANK", "WORLD_SIZE");
  if (!claim) return std::nullopt;
  if (claim->size > 1 && (!variable("MASTER_ADDR") || !variable("MASTER_PORT"))) {
    refuse_launcher(
        claim->said +
        " say that this is one of several ranks, but MASTER_ADDR and MASTER_PORT are not set; set "
        "them as torchrun does, or unset RANK and WORLD_SIZE");
  }
  read_local(*claim, "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  return claim;
}

void refuse_contradiction(const std::vector<Claim>& claims) {
  for (const Claim& other : claims) {
    const Claim& first = claims.front();
    if (other.rank == first.rank && other.size == first.size) continue;
    refuse_launcher("two launchers contradict each other: " + first.said + " (" + first.launcher +
                    "), but " + other.said + " (" + other.launcher +
                    "); unset the variables of the one that does not " + "start these ranks");
  }
}

// When another launcher runs its daemons as a step of srun, srun's variables are about the daemons.
void drop_claims_about_daemons(std::vector<Claim>& claims) {
  const bool another = std::ranges::any_of(claims, [](const Claim& claim) {
    return !claim.by_slurm && claim.source != Source::torchrun;
  });
  if (another) std::erase_if(claims, [](const Claim& claim) { return claim.by_slurm; });
}

std::vector<Claim> all_claims() {
  const auto slurm = slurm_claim();
  std::vector<Claim> claims;
  for (const auto& claim : {pmix_claim(slurm), pmi_claim(slurm), torchrun_claim(), slurm}) {
    if (claim) claims.push_back(*claim);
  }
  return claims;
}

}  // namespace

std::optional<Launcher> find_launcher() {
  // Whatever has started torchrun, this process is torchrun's.
  std::vector<Claim> claims;
  if (const auto torchrun = torchrun_claim(); torchrun && variable("TORCHELASTIC_RUN_ID")) {
    claims.push_back(*torchrun);
  } else {
    claims = all_claims();
    drop_claims_about_daemons(claims);
    if (!claims.empty()) refuse_contradiction(claims);
  }
  if (claims.empty() || claims.front().size == 1) return std::nullopt;
  return claims.front();
}

}  // namespace bootstrap

std::optional<LaunchedRank> launched() {
  if (const auto launch = bootstrap::read_environment()) {
    LaunchedRank rank;
    rank.launcher = "rondo run";
    rank.rank = launch->rank;
    rank.size = launch->size;
    return rank;
  }
  return bootstrap::find_launcher();
}

}  // namespace rondo::transport
