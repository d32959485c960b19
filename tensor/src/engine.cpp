// The engine of a rank, its team of threads, and the check that all kernels make of their views.
//
// oneDNN and our loops run on the OpenMP team of the calling thread, whose size is a setting of
// that thread. So every call sets it before it begins, and several engines, on several threads or
// on one, do not disturb each other. Denormals are flushed to zero on all threads of a team,
// because the control word that says so belongs to a thread. A host program may use OpenMP, too:
// when the last engine of a thread ends, all of this is as the first one found it.

#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/team.hpp>

#include <pmmintrin.h>

#include <stdexcept>
#include <string>

#include "engine_impl.hpp"
#include "kernels/kernels.hpp"

#ifdef _OPENMP
#include <omp.h>
#else
// oneDNN's runtime, which clang ships no header for.
extern "C" {
void omp_set_num_threads(int threads);
int omp_get_max_threads();
void omp_set_dynamic(int dynamic);
int omp_get_dynamic();
int omp_get_active_level();
int omp_get_max_active_levels();
}
#endif

namespace rondo::tensor {
namespace {

// Numbers near zero, as gradients become, cost many times as much as others.
void flush_denormals() {
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_ON);
}

// The size of the largest team whose threads this thread has prepared. Threads that the runtime
// makes later inherit the control word of this one.
thread_local int prepared_threads = 0;

// The settings of the thread that makes engines, from before the first of them.
struct HostSettings {
  int engines = 0;
  int threads = 0;
  int dynamic = 0;
  unsigned control = 0;  // the control word of its floating-point unit
};
thread_local HostSettings host;

void note_host_settings() {
  if (host.engines++ > 0) return;
  host.threads = omp_get_max_threads();
  host.dynamic = omp_get_dynamic();
  host.control = _mm_getcsr();
}

void restore_host_settings() {
  if (--host.engines > 0) return;
  for_each_part(prepared_threads, [control = host.control](int) { _mm_setcsr(control); });
  prepared_threads = 0;
  _mm_setcsr(host.control);
  omp_set_num_threads(host.threads);
  omp_set_dynamic(host.dynamic);
}

[[noreturn]] void refuse_team(int given, int threads) {
  throw std::runtime_error("Engine: OpenMP gives " + std::to_string(given) + " threads where " +
                           std::to_string(threads) +
                           " are needed; raise OMP_THREAD_LIMIT, and make no call from within a "
                           "parallel region");
}

// oneDNN's kernels are made for the threads that were asked for. They compute nothing of the share
// of one that is missing, or wait for it.
void require_whole_team([[maybe_unused]] int threads) {
#ifdef _OPENMP
  int given = 0;
  for_each_part(threads, [&given](int part) {
    flush_denormals();
    if (part == 0) given = omp_get_num_threads();
  });
  if (threads > 1 && given != threads) refuse_team(given, threads);
#endif
}

std::string text_of(const Shape& shape) {
  return std::to_string(shape.n) + "x" + std::to_string(shape.h) + "x" + std::to_string(shape.w) +
         "x" + std::to_string(shape.c);
}

}  // namespace

// oneDNN and our loops use the OpenMP team of the calling thread. Its size is a setting of that
// thread, which another engine may have changed since.
void prepare_team(int threads) {
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
  // Else the runtime may give fewer threads when the machine is busy.
  if (omp_get_dynamic() != 0) omp_set_dynamic(0);
  if (threads > 1 && omp_get_active_level() >= omp_get_max_active_levels()) refuse_team(1, threads);
  flush_denormals();
  if (prepared_threads >= threads) return;
  require_whole_team(threads);
  prepared_threads = threads;
}

void require_shape(std::string_view call, std::string_view argument, const ConstAnyView& given,
                   const Shape& expected, DataType type) {
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument(std::string(call) + ": " + std::string(argument) + " " + why);
  };
  if (given.shape != expected) {
    refuse("is " + text_of(given.shape) + ", but " + text_of(expected) +
           " (n x h x w x c) is expected");
  }
  if (given.type != type) {
    refuse(std::string("is ") + name_of(given.type) + ", but " + name_of(type) + " is expected");
  }
  if (expected.size() == 0) return;
  if (given.data == nullptr) refuse("has no memory");
}

Engine::Engine(int threads, std::pmr::memory_resource* memory, ConvolutionAlgorithm convolutions) {
  if (threads < 1) {
    throw std::invalid_argument("Engine: " + std::to_string(threads) +
                                " threads; at least 1 is needed");
  }
  impl_ = std::make_unique<Impl>(threads, memory, convolutions);
  note_host_settings();
  try {
    impl_->enter();
  } catch (...) {
    restore_host_settings();
    throw;
  }
}

Engine::~Engine() {
  if (impl_->made_on_this_thread()) restore_host_settings();
}

int Engine::threads() const noexcept { return impl_->threads(); }

std::pmr::memory_resource* Engine::memory() const noexcept { return impl_->memory(); }

ConvolutionAlgorithm Engine::convolutions() const noexcept { return impl_->convolutions(); }

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

namespace {

// To be raised when a kernel of ours takes the place of another, or becomes much faster.
constexpr int own_kernels = 3;

std::string onednn_instructions() {
  switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_avx512_core_amx:
      return "avx512_core_amx";
    case dnnl_cpu_isa_avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core:
      return "avx512_core";
    case dnnl_cpu_isa_avx2_vnni:
      return "avx2_vnni";
    case dnnl_cpu_isa_avx2:
      return "avx2";
    default:
      return "set " + std::to_string(static_cast<int>(dnnl_get_effective_cpu_isa()));
  }
}

}  // namespace

std::string kernel_set() {
  return "oneDNN " + onednn_version() + " " + onednn_instructions() + ", own kernels " +
         std::to_string(own_kernels) + " " + instruction_set();
}

void run_shares(Engine& engine, std::int64_t count, ShareFunction run, const void* use) {
  engine.impl().enter();
  for_each_part(engine.threads(), [&](int part) {
    // The same cuts as in our own loops, so that a caller's loop has the same bits whatever the
    // timing.
    const Cut share = cut(count, part, engine.threads());
    if (share.first < share.last) run(use, share.first, share.last);
  });
}

}  // namespace rondo::tensor
