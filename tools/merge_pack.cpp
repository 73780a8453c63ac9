// SPDX-License-Identifier: Apache-2.0
// See merge_pack.hpp.
#include "tools/merge_pack.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "diff/backend.hpp"
#include "diff/convert.hpp"
#include "diff/double_reader.hpp"
#include "diff/parts.hpp"
#include "diff/prepared.hpp"
#include "diff/seed.hpp"
#include "diff/sums.hpp"
#include "diff/tiles.hpp"
#include "libttrace/core/trouble.hpp"
#include "tolerance/bound.hpp"
#include "tools/merge_order.hpp"
#include "tools/pack_tensor.hpp"

namespace ttrace {
namespace {

using nlohmann::json;

// Collectives and second passes belong to a layout, not to the model.
bool belongs(const Key& key) { return key.phase != Phase::comm && key.phase != Phase::recompute; }

bool whole(const LogicalTensor& tensor) {
  return tensor.proved() && tensor.layout.partial.empty() && kept_of(tensor) == RecordKind::full;
}

// |scale * tensor - reference|^2
double squared_error(const LogicalTensor& tensor, double scale, const LogicalTensor& reference) {
  constexpr std::uint64_t kTile = 65536;
  DoubleReader own(tensor), theirs(reference);
  std::vector<double> mine, wanted;
  double squares = 0;
  for (const Box& box : tiles_of(tensor.shape, kTile)) {
    own.read(box, mine);
    theirs.read(box, wanted);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      squares += (scale * mine[i] - wanted[i]) * (scale * mine[i] - wanted[i]);
    }
  }
  return squares;
}

// Copies that differ may be addends: they are if their sum is nearer to the reference than they
// are.
std::optional<LogicalTensor> sum_of_copies(const LogicalTensor& tensor, double scale,
                                           const LogicalTensors& reference) {
  const Key& key = tensor.key;
  const bool inner = key.phase == Phase::forward || carries_seed(key);
  const auto theirs = reference.find(key);
  if (!inner || !has_problem(tensor, FindingKind::replica_conflict) || theirs == reference.end()) {
    return std::nullopt;
  }
  if (theirs->second.shape != tensor.shape || !readable_with_sums(theirs->second)) {
    return std::nullopt;
  }
  std::optional<LogicalTensor> sum = as_sum(tensor);
  if (!sum || !readable_with_sums(*sum)) return std::nullopt;
  const double of_sum = squared_error(*sum, scale, theirs->second);
  return of_sum < squared_error(tensor, scale, theirs->second) ? std::move(sum) : std::nullopt;
}

// What ranks have yet to add up, added up.
void write_sum(const LogicalTensor& tensor, std::size_t index, PackWriter& pack,
               const std::function<void(std::uint64_t)>& advance) {
  constexpr std::uint64_t kTile = 65536;
  const DType type = sum_type(tensor.dtype);
  DoubleReader reader(tensor);
  std::vector<double> sums;
  std::vector<std::byte> bytes;
  std::uint64_t at = 0;
  for (const Box& box : tiles_of(tensor.shape, kTile)) {
    reader.read(box, sums);
    bytes.resize(sums.size() * size_of(type));
    convert(DType::float64, reinterpret_cast<const std::byte*>(sums.data()), sums.size(), type,
            bytes.data());
    pack.write(index, at, bytes);
    at += bytes.size();
    advance(bytes.size());
  }
}

class Packer {
 public:
  explicit Packer(const PackRequest& request) : request_(request) {}

  void add(std::int64_t iteration) {
    iterations_.push_back(std::make_unique<Prepared>());
    Prepared& prepared = *iterations_.back();
    const Trace& reference = request_.reshard ? *request_.source : *request_.target;
    const Trace& candidate = request_.reshard ? *request_.target : *request_.source;
    prepare(prepared, reference, candidate, iteration, request_.rules, "");
    if (!request_.reshard && !prepared.reference_numbers.parts.empty()) {
      throw Trouble("pack", request_.source->path().string(),
                    "computes at once what " + request_.target->path().string() +
                        " computes in several turns: capture and replay the reference with the "
                        "candidate's micro-batch size");
    }
    if (prepared.alignment.pairs.empty()) {
      throw Trouble("pack", request_.source->path().string(),
                    "has no tensor in common with " + request_.target->path().string() +
                        "; are these runs of the same model?");
    }
    const Limits limits = bound_limits(prepared.alignment, *prepared.flow, std::nullopt);
    const Seeds seeds = find_seeds(prepared.alignment, reference, candidate, limits, *backend_);
    number_microbatches(iteration,
                        request_.reshard ? prepared.candidate_numbers : prepared.reference_numbers);
    result_.problems.insert(result_.problems.end(), prepared.findings.begin(),
                            prepared.findings.end());
    std::map<StorageId, std::size_t> known;
    const Side& source = request_.reshard ? prepared.reference : prepared.candidate;
    for (const auto& [key, tensor] : source.tensors) {
      const double scale = scale_for(key, seeds);
      if (request_.reshard && !add_cut(key, prepared.candidate)) continue;
      if (!belongs(key)) continue;
      if (auto sum = sum_of_copies(tensor, scale, prepared.reference.tensors)) {
        sums_.push_back(std::move(*sum));
        add_tensor(sums_.back(), request_.reshard ? 1 / scale : scale, known);
      } else if (whole(tensor) || readable_with_sums(tensor)) {
        add_tensor(tensor, request_.reshard ? 1 / scale : scale, known);
      } else {
        result_.problems.insert(result_.problems.end(), tensor.problems.begin(),
                                tensor.problems.end());
      }
    }
  }

  PackedTrace write(const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
    PackWriter pack(request_.path, entries_, replay_json());
    std::uint64_t done = 0;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].same_as != kOwnPayload) continue;
      const auto advance = [&](std::uint64_t bytes) {
        done += bytes;
        progress(done, result_.bytes);
      };
      (whole(*tensors_[i]) ? write_tensor : write_sum)(*tensors_[i], i, pack, advance);
    }
    pack.close();
    result_.tensors = entries_.size();
    return std::move(result_);
  }

 private:
  void add_tensor(const LogicalTensor& tensor, double scale,
                  std::map<StorageId, std::size_t>& known) {
    PackEntry entry;
    entry.name = to_string(tensor.key);
    entry.dtype = whole(tensor) ? tensor.dtype : sum_type(tensor.dtype);
    entry.shape = tensor.shape;
    entry.scale = scale;
    const auto [first, is_new] = known.emplace(storage_id(tensor), entries_.size());
    if (!is_new) entry.same_as = first->second;
    if (is_new) result_.bytes += entry.bytes();
    entries_.push_back(std::move(entry));
    tensors_.push_back(&tensor);
  }

  // How the target cuts this tensor. False when its ranks have addends of it, or rows that were
  // routed to them: what one rank would have to be given is then not known. Flat pieces are cut out
  // by the target, which declared them.
  bool add_cut(const Key& key, const Side& target) {
    const auto decision = target.layouts.find(key);
    if (decision == target.layouts.end() || !decision->second.known) return false;
    const Layout& layout = decision->second.layout;
    if (!layout.partial.empty() || decision->second.parts) return false;
    const auto ragged = [](const Cut& cut) { return cut.kind == CutKind::ragged; };
    for (const auto& cuts : layout.dims) {
      if (std::any_of(cuts.begin(), cuts.end(), ragged)) return false;
    }
    Layout dims = layout;
    dims.swapped.reset();
    dims.flat.reset();
    for (auto& cuts : dims.dims) {
      for (Cut& cut : cuts) cut.documents.clear();  // the lengths instead, of this micro-batch
    }
    json entry = {{"dims", to_string(dims)}};
    if (layout.swapped) entry["swapped"] = {layout.swapped->first, layout.swapped->second};
    layouts_[to_string(key)] = std::move(entry);
    return true;
  }

  // iteration -> rank -> its own number -> the number in this pack
  void number_microbatches(std::int64_t iteration, const MicrobatchNumbers& numbers) {
    json& of_iteration = microbatches_[std::to_string(iteration)];
    of_iteration = json::object();
    for (const auto& [own, number] : numbers) {
      of_iteration[std::to_string(own.first)][std::to_string(own.second)] = number;
    }
  }

  std::string replay_json() const {
    return json{{"source", request_.source->path().string()},
                {"run_id", request_.source->run_id()},
                {"target_run_id", request_.target->run_id()},
                {"microbatches", microbatches_},
                {"layouts", layouts_}}
        .dump();
  }

  const PackRequest& request_;
  std::unique_ptr<Backend> backend_ = make_cpu_backend();
  std::vector<std::unique_ptr<Prepared>> iterations_;
  std::vector<PackEntry> entries_;
  std::vector<const LogicalTensor*> tensors_;  // of entries_, by index
  std::deque<LogicalTensor> sums_;             // some of these
  json microbatches_ = json::object();
  json layouts_ = json::object();  // of a target of several ranks
  PackedTrace result_;
};

}  // namespace

PackedTrace write_replay_pack(const PackRequest& request,
                              const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  Packer packer(request);
  for (const std::int64_t iteration : request.iterations) packer.add(iteration);
  return packer.write(progress);
}

}  // namespace ttrace
