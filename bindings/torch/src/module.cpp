// The extension module _rondo_torch, which rondo/torch.py wraps.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/extension.h>

#include <rondo/transport/world.hpp>

#include "arena_allocator.hpp"
#include "engine.hpp"
#include "process_group.hpp"

namespace rondo::torch_backend {

namespace {

namespace py = pybind11;

std::vector<std::weak_ptr<Engine>>& engines() {
  static std::vector<std::weak_ptr<Engine>> all;
  return all;
}

/// Gathers over the store of torch.distributed.
transport::Allgather gather_over(const StorePointer& store, int rank, int size) {
  return [store, rank, size, round = 0](std::span<const std::byte> mine,
                                        std::span<std::byte> all) mutable {
    const std::string prefix = "rondo/" + std::to_string(round++) + "/";
    const auto* data = reinterpret_cast<const std::uint8_t*>(mine.data());
    const std::vector<std::uint8_t> value(data, data + mine.size());
    store->set(prefix + std::to_string(rank), value);
    for (int peer = 0; peer < size; ++peer) {
      const auto theirs = store->get(prefix + std::to_string(peer));
      TORCH_CHECK(theirs.size() == mine.size(), "rondo: rank ", peer, " runs another version");
      std::memcpy(&all[static_cast<std::size_t>(peer) * mine.size()], theirs.data(), mine.size());
    }
  };
}

transport::World make_world(const StorePointer& store, int rank, int size,
                            std::chrono::milliseconds timeout, const Engine::StallNote& stall) {
  transport::WorldOptions options;
  options.deadline = std::min(timeout, longest_timeout);
  options.bootstrap_deadline = options.deadline;
  options.stall_warning = stall_time;
  options.on_stall = [stall](const transport::Stall& now) { *stall = now; };
  return transport::World::create(rank, size, gather_over(store, rank, size), options);
}

/// Before Python ends: a thread of ours must not outlive the interpreter.
void close_all() {
  for (const auto& one : engines()) {
    if (const auto engine = one.lock()) engine->close();
  }
  engines().clear();
}

/// An arena that a thread of Python has chosen, for a `with` statement.
class Arena {
 public:
  explicit Arena(const c10::intrusive_ptr<Base>& group) {
    if (auto* ours = dynamic_cast<ProcessGroup*>(group.get())) engine_ = ours->engine();
  }
  void enter() { before_ = choose_arena(engine_); }
  void leave() { choose_arena(std::move(before_)); }
  [[nodiscard]] bool usable() const noexcept { return engine_ != nullptr; }
  [[nodiscard]] bool contains(const at::Tensor& tensor) const {
    return engine_ && engine_->contains(tensor.data_ptr(), tensor.nbytes());
  }

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Engine> before_;
};

/// Other threads of Python run while this waits, and not while the pause lasts.
Engine::Pause pause_completions(Engine& engine) {
  std::optional<py::gil_scoped_release> released;
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) released.emplace();
  return engine.pause_completions();
}

/// Keeps a storage, and its size, until the last one of it is gone.
class KeptStorage {
 public:
  explicit KeptStorage(const at::Tensor& tensor) : storage_(tensor.storage()) {
    const std::lock_guard lock(mutex());
    Kept& kept = all()[storage_.unsafeGetStorageImpl()];
    if (kept.count++ > 0) return;
    kept.resizable = storage_.resizable();
    storage_.unsafeGetStorageImpl()->set_resizable(false);
  }
  KeptStorage(const KeptStorage&) = delete;
  KeptStorage& operator=(const KeptStorage&) = delete;
  ~KeptStorage() {
    const std::lock_guard lock(mutex());
    c10::StorageImpl* const storage = storage_.unsafeGetStorageImpl();
    const auto found = all().find(storage);
    if (--found->second.count > 0) return;
    // share_memory_() takes the allocator away.
    if (found->second.resizable && storage->allocator() != nullptr) storage->set_resizable(true);
    all().erase(found);
  }

 private:
  struct Kept {
    int count = 0;
    bool resizable = false;
  };
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::map<c10::StorageImpl*, Kept>& all() {
    static auto& kept = *new std::map<c10::StorageImpl*, Kept>;  // needed at the interpreter's end
    return kept;
  }

  c10::Storage storage_;
};

/// A tensor whose memory is in the arena, for a `with` statement.
class Adopted {
 public:
  Adopted(const c10::intrusive_ptr<Base>& group, at::Tensor tensor) : tensor_(std::move(tensor)) {
    auto* ours = dynamic_cast<ProcessGroup*>(group.get());
    TORCH_CHECK_VALUE(ours != nullptr,
                      "rondo.torch.adopt: the process group is not of the backend "
                      "\"rondo\"");
    TORCH_CHECK_VALUE(tensor_.layout() == at::kStrided && tensor_.device().is_cpu() &&
                          tensor_.is_non_overlapping_and_dense(),
                      "rondo.torch.adopt: takes dense tensors on the CPU");
    engine_ = ours->engine();
    memory_ = engine_->adopt({static_cast<std::byte*>(tensor_.data_ptr()), tensor_.nbytes()},
                             pause_completions(*engine_));
    // A tensor may get another storage, while the memory of this one is adopted.
    storage_.emplace(tensor_);
  }
  Adopted(const Adopted&) = delete;
  Adopted& operator=(const Adopted&) = delete;
  ~Adopted() { release(); }

  void release() {
    engine_->release(memory_, pause_completions(*engine_));
    storage_.reset();
  }
  [[nodiscard]] const at::Tensor& tensor() const noexcept { return tensor_; }

 private:
  std::shared_ptr<Engine> engine_;
  at::Tensor tensor_;
  std::optional<KeptStorage> storage_;
  transport::AdoptedMemory memory_;
};

}  // namespace

c10::intrusive_ptr<Base> create_group(const StorePointer& store, int rank, int size,
                                      std::chrono::milliseconds timeout) {
  auto stall = std::make_shared<transport::Stall>();
  auto engine = std::make_shared<Engine>(make_world(store, rank, size, timeout, stall), stall);
  engine->open();
  engines().push_back(engine);
  return c10::make_intrusive<ProcessGroup>(std::move(engine), rank, size, timeout);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using Release = py::call_guard<py::gil_scoped_release>;
  install_arena_allocator();
  module.def("create", &create_group, Release(), py::arg("store"), py::arg("rank"), py::arg("size"),
             py::arg("timeout"));
  module.def("close_all", &close_all, Release());
  py::class_<Arena>(module, "Arena")
      .def(py::init<const c10::intrusive_ptr<Base>&>())
      .def_property_readonly("usable", &Arena::usable)
      .def("contains", &Arena::contains, py::arg("tensor"))
      .def("__enter__", &Arena::enter)
      .def("__exit__", [](Arena& arena, const py::args&) { arena.leave(); });
  py::class_<Adopted>(module, "Adopted")
      .def(py::init<const c10::intrusive_ptr<Base>&, at::Tensor>())
      .def("release", &Adopted::release)
      .def("__enter__", &Adopted::tensor)
      .def("__exit__", [](Adopted& adopted, const py::args&) { adopted.release(); });
}

}  // namespace rondo::torch_backend
