// A part of a model that is trained by averages: its common parameters, its mean, and its round.
// Without fragments it is the whole model.

#include "schemes/fragment.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <rondo/transport/communicator.hpp>

#include "flat/flat.hpp"

namespace rondo::sync {

namespace {

Replica part_of(const Replica& whole, const FragmentRange& range, bool with_statistics) {
  Replica part = whole;
  part.parameters = whole.parameters.subspan(range.offset, range.size);
  part.gradients = whole.gradients.subspan(range.offset, range.size);
  if (!with_statistics) part.statistics = {};
  std::erase_if(part.slices.copies, [&](const Slices::Copy& copy) {
    return copy.offset < range.offset || copy.offset >= range.offset + range.size;
  });
  for (Slices::Copy& copy : part.slices.copies) copy.offset -= range.offset;
  return part;
}

}  // namespace

// A fragment takes layers until the model's share is reached that ends with it, and leaves one for
// each of the next.
std::vector<FragmentRange> cut_into_fragments(std::span<const Layer> layers,
                                              std::span<const std::uint64_t> whole_sizes,
                                              std::size_t fragments) {
  const std::uint64_t total = std::accumulate(whole_sizes.begin(), whole_sizes.end(), 0ULL);
  std::vector<FragmentRange> ranges;
  std::size_t next = 0;
  std::size_t end = 0;
  std::uint64_t reached = 0;  // of the whole model
  for (std::size_t i = 0; i < fragments; ++i) {
    FragmentRange range{.offset = end};
    const std::size_t most = layers.size() - (fragments - 1 - i);
    const std::size_t first = next;
    const auto is_full = [&] { return next > first && reached >= total * (i + 1) / fragments; };
    for (; next < most && !is_full(); ++next) {
      end += layers[next].size;
      reached += whole_sizes[next];
    }
    range.size = end - range.offset;
    ranges.push_back(range);
  }
  return ranges;
}

Fragment::Fragment(const Replica& whole, const FragmentRange& range, const Settings& settings)
    : offset(range.offset),
      first_period(settings.first_period),
      replica(part_of(whole, range, settings.with_statistics)),
      model(settings.scheme, settings.momentum, range.size),
      mean(replica, settings.state_size),
      unsent(settings.sends_bf16 ? range.size : 0, 0.0F),
      progress{.period = settings.first_period} {
  if (settings.sends_bf16) mean.prepare_bf16();
  if (settings.overlaps) under_way.emplace(replica, settings.sends_bf16);
}

void Fragment::count_step(const Step& step) {
  if (is_under_way()) {
    under_way->count_step(step.learning_rate);
  } else {
    model.count_step(step.learning_rate);
  }
  ++progress.steps;
  progress.last_step = step.index;
  progress.samples += static_cast<std::int64_t>(step.global_samples);
  progress.own_samples += static_cast<std::int64_t>(step.local_samples);
}

Round Fragment::round_under_way() const noexcept {
  return {.index = progress.round,
          .steps = progress.steps,
          .samples = progress.samples,
          .last_step = progress.last_step};
}

void Fragment::begin_round(std::int64_t period) {
  progress = {.round = progress.round + 1, .period = period};
}

float Fragment::weight(int ranks) const noexcept {
  if (progress.samples == 0 || ranks == 1) return 1.0F;
  const double own = static_cast<double>(progress.own_samples) * ranks;
  return static_cast<float>(own / static_cast<double>(progress.samples));
}

void Fragment::evaluate(transport::Communicator& outer, bool started, std::span<float> parameters,
                        std::span<float> statistics) {
  std::span<const float> start = replica.parameters;
  if (started) start = model.parameters();
  std::optional<CommonModel> ahead;  // with the average that is under way
  if (is_under_way()) {
    ahead = model.advanced(under_way->arrived().displacement());
    start = ahead->parameters();
    under_way->move_to(parameters, start);
  }
  mean.pack(parameters, start, {}, weight(outer.size()));
  if (progress.steps > 0) mean.add_unsent(unsent);
  mean.reduce(outer);
  flat::sum_scaled(parameters, start, 1.0F, mean.displacement());
  std::ranges::copy(mean.statistics(), statistics.begin());
}

void Fragment::write(ByteWriter& writer) const {
  for (const std::int64_t value : {progress.round, progress.steps, progress.samples,
                                   progress.own_samples, progress.period, progress.last_step}) {
    writer.put(value);
  }
  model.write(writer);
  writer.put_array(std::span<const float>(unsent));
  writer.put(under_way.has_value());
  if (under_way) under_way->write(writer);
}

// The common model is read into a copy, which checks its sizes.
Fragment::Saved Fragment::read(ByteReader& reader) {
  RoundProgress saved;
  for (std::int64_t* value : {&saved.round, &saved.steps, &saved.samples, &saved.own_samples,
                              &saved.period, &saved.last_step}) {
    *value = reader.get<std::int64_t>();
  }
  CommonModel common = model;
  common.read(reader);
  std::vector<float> left(unsent.size());
  reader.get_array(std::span(left));
  if ((reader.get<std::uint8_t>() != 0) != under_way.has_value()) {
    reader.fail("the state was saved with another choice of overlap_steps, of 0 or more");
  }
  std::function<void()> average = under_way ? under_way->read(reader) : [] {};
  return {saved, [this, common = std::move(common), left = std::move(left),
                  average = std::move(average)](const RoundProgress& at) mutable {
            progress = at;
            model = std::move(common);
            unsent = std::move(left);
            average();
          }};
}

}  // namespace rondo::sync
