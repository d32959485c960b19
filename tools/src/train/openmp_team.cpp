#include "train/openmp_team.hpp"

namespace rondo::tools {
namespace {

class OpenMpTeam final : public transport::Team {
 public:
  explicit OpenMpTeam(int threads) noexcept : threads_(threads) {}

  [[nodiscard]] int size() const noexcept override { return threads_; }

  void run(void (*part)(void* context, int index), void* context) override {
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (int index = 0; index < threads_; ++index) part(context, index);
  }

 private:
  int threads_;
};

}  // namespace

std::unique_ptr<transport::Team> make_openmp_team(int threads) {
  return threads > 1 ? std::make_unique<OpenMpTeam>(threads) : nullptr;
}

}  // namespace rondo::tools
