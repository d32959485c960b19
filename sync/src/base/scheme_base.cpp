// The common part of schemes: checks when one is made, the order of calls, evaluation and states.
//
// Each public call is checked first and then handed to the scheme's own part. An iteration counts
// as open until the scheme's end_iteration() has returned: where that throws, because a peer was
// lost, the model may be half updated, and every later call is refused.
//
// Besides what schemes are made of: means of statistics over ranks, for evaluation; and states as
// bytes: a name, a version, and values with checked counts.

#include <rondo/sync/scheme_base.hpp>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::sync {
namespace {

[[noreturn]] void refuse_replica(const std::string& reason) {
  throw std::invalid_argument("replica: " + reason);
}

void check_slices(const Slices& slices, std::size_t size) {
  std::size_t end = 0;
  for (const Slices::Part& part : slices.counted) {
    if (part.offset < end || part.offset > size || part.size > size - part.offset) {
      refuse_replica("it counts " + std::to_string(part.size) + " elements from " +
                     std::to_string(part.offset) + " on, which are out of order or not there");
    }
    end = part.offset + part.size;
  }
}

void check_copies(std::span<const Slices::Copy> copies, std::span<const Layer> layers) {
  std::size_t end = 0;
  for (const Slices::Copy& copy : copies) {
    const auto layer = std::ranges::find_if(layers, [&](const Layer& each) {
      return copy.offset >= each.offset && copy.offset + copy.size <= each.offset + each.size;
    });
    if (copy.offset < end || copy.size == 0 || layer == layers.end()) {
      refuse_replica("its copies of " + std::to_string(copy.size) + " elements from " +
                     std::to_string(copy.offset) + " on are out of order, none, or in no layer");
    }
    if (copy.holders == nullptr)
      refuse_replica("copies in layer " + layer->name + " have no holders");
    end = copy.offset + copy.size;
  }
}

void check_layers(std::span<const Layer> layers, std::size_t size) {
  std::size_t end = 0;
  for (const Layer& layer : layers) {
    if (layer.offset != end) {
      refuse_replica("layer " + layer.name + " begins at " + std::to_string(layer.offset) +
                     ", the one before it ends at " + std::to_string(end));
    }
    if (layer.groups.slice == nullptr) {
      refuse_replica("layer " + layer.name + " has no slice group");
    }
    end += layer.size;
  }
  if (end != size) {
    refuse_replica("layers cover " + std::to_string(end) + " of " + std::to_string(size) +
                   " parameters");
  }
}

Replica checked(Replica replica) {
  if (replica.world == nullptr) refuse_replica("no world was given");
  const std::size_t size = replica.parameters.size();
  if (replica.gradients.size() != size) {
    refuse_replica(std::to_string(size) + " parameters, but " +
                   std::to_string(replica.gradients.size()) + " gradients");
  }
  check_slices(replica.slices, size);
  check_layers(replica.layers, size);
  check_copies(replica.slices.copies, replica.layers);
  return replica;
}

/// All counters of a scheme, in the order in which they are saved.
constexpr std::array all_counters{
    &SchemeCounters::global_reductions,    &SchemeCounters::lazy_reductions,
    &SchemeCounters::local_reductions,     &SchemeCounters::global_bytes,
    &SchemeCounters::local_bytes,          &SchemeCounters::collectives,
    &SchemeCounters::evaluation_reductions};
static_assert(sizeof(SchemeCounters) == all_counters.size() * sizeof(std::uint64_t));

}  // namespace

void write_counters(ByteWriter& writer, const SchemeCounters& counters) {
  for (const auto counter : all_counters) writer.put(counters.*counter);
}

SchemeCounters read_counters(ByteReader& reader) {
  SchemeCounters counters;
  for (const auto counter : all_counters) counters.*counter = reader.get<std::uint64_t>();
  return counters;
}

SchemeCounters operator+(const SchemeCounters& a, const SchemeCounters& b) noexcept {
  SchemeCounters both;
  for (const auto counter : all_counters) both.*counter = a.*counter + b.*counter;
  return both;
}

SchemeCounters operator-(const SchemeCounters& later, const SchemeCounters& earlier) noexcept {
  SchemeCounters gained;
  for (const auto counter : all_counters) gained.*counter = later.*counter - earlier.*counter;
  return gained;
}

UpdateScheme::~UpdateScheme() = default;

SchemeBase::SchemeBase(const SchemeDescription& description, Replica replica,
                       std::shared_ptr<Optimizer> optimizer, const StateFormat& format)
    : description_(description),
      format_(format),
      replica_(checked(std::move(replica))),
      optimizer_(std::move(optimizer)),
      outer_(description.steps_alone() ? common_outer() : nullptr),
      statistics_mean_(replica_),
      final_(replica_.layers.size(), 0) {
  if (format_.name.empty()) format_.name = description_.name;
  if (optimizer_ == nullptr) refuse("no optimizer was given");
  if (optimizer_->size() != replica_.parameters.size()) {
    refuse("the optimizer is for " + std::to_string(optimizer_->size()) +
           " parameters, the replica has " + std::to_string(replica_.parameters.size()));
  }
}

// Schemes that average whole replicas use one group: they do not cut the model by layers.
transport::Communicator* SchemeBase::common_outer() const {
  if (replica_.layers.empty()) refuse("the replica has no layers");
  const Layer& first = replica_.layers.front();
  for (const Layer& layer : replica_.layers) {
    if (layer.groups.outer == nullptr) refuse("layer " + layer.name + " has no outer group");
    if (layer.groups.outer != first.groups.outer) {
      refuse("layer " + layer.name + " has another outer group than layer " + first.name +
             "; the scheme needs one for all");
    }
  }
  return first.groups.outer;
}

void SchemeBase::expect_whole_layers(std::string_view what, std::span<const Layer> layers) const {
  const std::string prefix = what.empty() ? std::string() : std::string(what) + ": ";
  for (const Layer& layer : layers) {
    const Groups& groups = layer.groups;
    if (groups.slice->size() != replica_.world->size()) {
      refuse(prefix + "layer " + layer.name + " is sharded; it must be whole on every rank");
    }
    if (groups.slice != layers.front().groups.slice) {
      refuse(prefix + "layer " + layer.name + " has another slice group than layer " +
             layers.front().name);
    }
  }
}

// Iterations.

void SchemeBase::begin(const Step& step) {
  expect_between("begin()");
  if (step.global_samples == 0) {
    refuse("step " + std::to_string(step.index) + " has no samples on any rank");
  }
  if (step.local_samples == 0 && !description_.empty_shares) {
    refuse("step " + std::to_string(step.index) + " has no samples on rank " +
           std::to_string(replica_.world->rank()));
  }
  step_ = step;
  open_ = true;
  std::ranges::fill(final_, std::uint8_t{0});
  begin_iteration();
}

void SchemeBase::gradients_final(std::size_t layer) {
  expect_open("gradients_final()");
  if (layer >= final_.size()) refuse("there is no layer " + std::to_string(layer));
  if (std::exchange(final_[layer], std::uint8_t{1}) != 0) {
    refuse("layer " + replica_.layers[layer].name + " is final for the second time in step " +
           std::to_string(step_.index));
  }
  layer_final(layer);
}

void SchemeBase::finish() {
  expect_open("finish()");
  const auto missing = std::ranges::find(final_, std::uint8_t{0});
  if (missing != final_.end()) {
    const auto layer = static_cast<std::size_t>(missing - final_.begin());
    throw std::logic_error(named("finish() before the gradients of layer " +
                                 replica_.layers[layer].name + " are final"));
  }
  end_iteration();
  open_ = false;
}

void SchemeBase::expect_open(std::string_view call) const {
  if (!open_) throw std::logic_error(named(std::string(call) + " before begin()"));
}

void SchemeBase::expect_between(std::string_view call) const {
  if (!open_) return;
  throw std::logic_error(
      named(std::string(call) + " in the middle of step " + std::to_string(step_.index)));
}

std::string SchemeBase::named(std::string_view text) const {
  return std::string(description_.name) + ": " + std::string(text);
}

void SchemeBase::refuse(const std::string& reason) const {
  throw std::invalid_argument(named(reason));
}

// Between iterations.

void SchemeBase::copy_for_evaluation(std::span<float> parameters, std::span<float> statistics) {
  expect_between("copy_for_evaluation()");
  expect_rest("copy_for_evaluation()");
  if (parameters.size() != replica_.parameters.size() ||
      statistics.size() != replica_.statistics.size()) {
    refuse("the evaluation copy's sizes are not the replica's");
  }
  evaluate(parameters, statistics);
}

void SchemeBase::evaluate(std::span<float> parameters, std::span<float> statistics) {
  std::ranges::copy(replica_.parameters, parameters.begin());
  if (average_statistics(statistics)) ++counters_.evaluation_reductions;
}

// In double and apart from the parameters: ranks that agree get exactly what they had.
bool SchemeBase::average_statistics(std::span<float> mean) {
  statistics_mean_.compute(replica_.statistics, mean);
  return statistics_mean_.reduces();
}

void SchemeBase::flush() {
  expect_between("flush()");
  apply_pending();
}

std::vector<std::span<const float>> SchemeBase::replicated() const { return {replica_.parameters}; }

std::vector<std::byte> SchemeBase::save() const {
  expect_between("save()");
  expect_rest("save()");
  ByteWriter writer(format_.name, format_.version);
  write_counters(writer, counters_);
  write_state(writer);
  if (saves_optimizer()) writer.put_array(std::span<const std::byte>(optimizer_->save()));
  return writer.take();
}

// All is read before anything changes. The optimizer is the first to take over its part, since it
// is the last that may refuse.
void SchemeBase::restore(std::span<const std::byte> state) {
  expect_between("restore()");
  expect_rest("restore()");
  ByteReader reader(state, format_.name, format_.version);
  const SchemeCounters counters = read_counters(reader);
  const std::function<void()> take_over = read_state(reader);
  const auto optimizer_state =
      saves_optimizer() ? reader.get_bytes() : std::span<const std::byte>();
  reader.expect_end();
  if (saves_optimizer()) optimizer_->restore(optimizer_state);
  take_over();
  counters_ = counters;
}

// Means over ranks.

StatisticsMean::StatisticsMean(const Replica& replica)
    : ranks_(replica.statistics_over != nullptr ? *replica.statistics_over
                                                : replica.world->communicator()),
      sums_(replica.statistics.size(), 0.0, &replica.world->arena()) {}

bool StatisticsMean::reduces() const noexcept { return ranks_.size() > 1 && !sums_.empty(); }

void StatisticsMean::compute(std::span<const float> mine, std::span<float> mean) {
  if (!reduces()) {
    std::ranges::copy(mine, mean.begin());
    return;
  }
  std::ranges::copy(mine, sums_.begin());
  ranks_.allreduce(std::span(sums_)).wait();
  const auto ranks = static_cast<double>(ranks_.size());
  std::ranges::transform(sums_, mean.begin(),
                         [ranks](double sum) { return static_cast<float>(sum / ranks); });
}

// States as bytes.

ByteWriter::ByteWriter(std::string_view name, std::uint32_t version) {
  put_array(std::span<const char>(name));
  put(version);
}

void ByteWriter::append(std::span<const std::byte> bytes) {
  const std::size_t end = bytes_.size();
  bytes_.resize(end + bytes.size());
  std::ranges::copy(bytes, std::span(bytes_).subspan(end).begin());
}

ByteReader::ByteReader(std::span<const std::byte> bytes, std::string_view name,
                       std::uint32_t version)
    : rest_(bytes), name_(name) {
  const std::span<const std::byte> found = get_bytes();
  const auto expected = std::as_bytes(std::span<const char>(name));
  if (!std::ranges::equal(found, expected)) fail("this is the state of something else");
  const auto found_version = get<std::uint32_t>();
  if (found_version != version) {
    fail("version " + std::to_string(found_version) + " was written, version " +
         std::to_string(version) + " can be read");
  }
}

std::span<const std::byte> ByteReader::get_bytes() {
  const auto count = get<std::uint64_t>();
  if (count > rest_.size()) fail("cut short, or not a state at all");
  const std::span<const std::byte> bytes = rest_.first(static_cast<std::size_t>(count));
  rest_ = rest_.subspan(bytes.size());
  return bytes;
}

void ByteReader::expect_end() const {
  if (!rest_.empty()) fail(std::to_string(rest_.size()) + " bytes too many");
}

void ByteReader::copy(std::span<std::byte> into) {
  if (into.size() > rest_.size()) fail("cut short, or not a state at all");
  std::ranges::copy(rest_.first(into.size()), into.begin());
  rest_ = rest_.subspan(into.size());
}

void ByteReader::expect_count(std::size_t expected) {
  const auto count = get<std::uint64_t>();
  if (count != expected) {
    fail(std::to_string(count) + " elements were saved, there are " + std::to_string(expected));
  }
}

void ByteReader::fail(const std::string& problem) const {
  throw std::invalid_argument("state of " + name_ + ": " + problem);
}

}  // namespace rondo::sync
