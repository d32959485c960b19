#include <rondo/tensor/engine.hpp>

#include <stdexcept>
#include <string>

#include "engine_impl.hpp"
#include "kernels/kernels.hpp"

namespace rondo::tensor {

Engine::Engine(int threads, std::pmr::memory_resource* memory) {
  if (threads < 1) {
    throw std::invalid_argument("Engine: " + std::to_string(threads) +
                                " threads; at least 1 is needed");
  }
  impl_ = std::make_unique<Impl>(threads, memory);
  impl_->enter();
}

Engine::~Engine() = default;

int Engine::threads() const noexcept { return impl_->threads(); }

std::pmr::memory_resource* Engine::memory() const noexcept { return impl_->memory(); }

void Engine::set_layer_memory(std::pmr::memory_resource* memory) noexcept {
  impl_->set_layer_memory(memory);
}

std::pmr::memory_resource* Engine::layer_memory() const noexcept { return impl_->layer_memory(); }

std::string instruction_set() { return name_of(best_instruction_set()); }

std::string onednn_version() {
  const dnnl_version_t& version = *dnnl::version();
  return std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch);
}

}  // namespace rondo::tensor
