// SPDX-License-Identifier: Apache-2.0
// Runs the statistics of diff/statistics.hpp on tensors that a test in another language made up:
//   statistics_of FOLDER < JOB
// JOB: {"cases": [{"shape": [4, 8], "reference": TENSOR, "candidate": TENSOR, "noise": [TENSOR],
//   "epsilon": 1, "scale": 1, "floor": 0, "gain": 1, "class": "ordinary", "method": "local",
//   "extra": {"width": 8, "squares": [0]}}]}, with all from "scale" on optional.
// TENSOR: {"dtype": "bfloat16", "dims": "- [tp]", "mesh": [["tp", 2]], "shards": [{"shape": [4, 4],
//   "file": "raw bytes in FOLDER", "repeat": 1}]}, one shard a rank. FOLDER also holds the traces.
// Prints {"results": [...], "peak_kb": N}.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <list>
#include <map>
#include <nlohmann/json.hpp>

#include "diff/statistics.hpp"
#include "libttrace/logical.hpp"
#include "libttrace/segment.hpp"
#include "libttrace/trace.hpp"
#include "libttrace/trace_files.hpp"

namespace {

using namespace ttrace;
using Json = nlohmann::json;
namespace fs = std::filesystem;

std::vector<std::byte> read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

// All tensors of one mesh are in one trace, as outputs of modules t0, t1, ...
class MeshTrace {
 public:
  MeshTrace(fs::path folder, Json mesh) : folder_(std::move(folder)), mesh_(std::move(mesh)) {}

  Key add(const Json& tensor) {
    tensors_.push_back(tensor);
    return key_of(tensors_.size() - 1);
  }

  void write_and_open(const fs::path& root) {
    fs::create_directories(root);
    std::ofstream(root / "trace.json") << R"({"format":"ttrace-trace","version":1,"run_id":"r"})";
    std::uint64_t ranks = 1;
    for (const Json& axis : mesh_) ranks *= axis[1].get<std::uint64_t>();
    for (std::uint64_t rank = 0; rank < ranks; ++rank) write_rank(root, rank, ranks);
    trace_.emplace(Trace::open(root));
    groups_ = group_shards(*trace_, 0, number_microbatches(*trace_, 0));
    decisions_ = declared_layouts(groups_, {});
  }

  [[nodiscard]] LogicalTensor tensor(const Key& key, const Shape& shape) const {
    LayoutDecision decision = decisions_.at(key);
    decision.global_shape = shape;
    return place_shards(key, groups_.at(key), decision);
  }

 private:
  static Key key_of(std::size_t number) {
    return parse_key("it0/mb0/forward/t" + std::to_string(number) + "/output.0").value();
  }

  void write_rank(const fs::path& root, std::uint64_t rank, std::uint64_t ranks) const {
    const auto number = static_cast<std::int32_t>(rank);
    fs::create_directories(root / rank_directory_name(number));
    Json axes = Json::array();
    std::uint64_t rest = rank;
    for (std::size_t i = mesh_.size(); i-- > 0;) {
      const auto size = mesh_[i][1].get<std::uint64_t>();
      axes.push_back({{"name", mesh_[i][0]}, {"size", size}, {"coord", rest % size}});
      rest /= size;
    }
    const Json json = {{"format", "ttrace-rank"}, {"version", 1}, {"run_id", "r"},
                       {"rank", number},          {"axes", axes}, {"world_size", ranks}};
    std::ofstream(root / rank_directory_name(number) / "rank.json") << json.dump();
    SegmentWriter writer(segment_path(root, number, 0), {"r", number, 0, true});
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      write_shard(writer, key_of(i), tensors_[i], tensors_[i].at("shards").at(rank));
    }
    writer.close(true);
  }

  void write_shard(SegmentWriter& writer, const Key& key, const Json& tensor,
                   const Json& shard) const {
    Record record;
    record.key = key;
    record.dtype = dtype_from_name(tensor.at("dtype").get<std::string>()).value();
    record.shape = shard.at("shape").get<Shape>();
    const std::vector<std::byte> bytes = read_file(folder_ / shard.at("file").get<std::string>());
    const auto repeat = shard.value("repeat", std::uint64_t{1});
    record.bytes = bytes.size() * repeat;
    writer.begin(record, Json{{"dims", tensor.value("dims", "")}}.dump());
    for (std::uint64_t i = 0; i < repeat; ++i) writer.append(bytes);
    writer.commit();
  }

  fs::path folder_;
  Json mesh_;
  std::vector<Json> tensors_;
  std::optional<Trace> trace_;
  ShardGroups groups_;
  LayoutDecisions decisions_;
};

class Tensors {
 public:
  explicit Tensors(fs::path folder) : folder_(std::move(folder)) {}

  void announce(const Json& tensor) {
    if (keys_.count(tensor.dump()) > 0) return;
    const Json mesh = tensor.value("mesh", Json::array());
    MeshTrace& trace = traces_.try_emplace(mesh.dump(), folder_, mesh).first->second;
    keys_[tensor.dump()] = {&trace, trace.add(tensor)};
  }

  void write() {
    const fs::path root = fs::path(folder_) / "traces";
    fs::remove_all(root);
    std::size_t number = 0;
    for (auto& [mesh, trace] : traces_) {
      trace.write_and_open(root / ("trace" + std::to_string(number++)));
    }
  }

  const LogicalTensor* get(const Json& tensor, const Shape& shape) {
    const auto& [trace, key] = keys_.at(tensor.dump());
    tensors_.push_back(trace->tensor(key, shape));
    return &tensors_.back();
  }

 private:
  fs::path folder_;
  std::map<std::string, MeshTrace> traces_;
  std::map<std::string, std::pair<MeshTrace*, Key>> keys_;
  std::list<LogicalTensor> tensors_;
};

TensorClass class_of(const std::string& name) {
  if (name == "parameter") return TensorClass::parameter;
  return name == "softmax_backward" ? TensorClass::softmax_backward : TensorClass::ordinary;
}

// Of this program alone; getrusage would count what its parent had when it forked.
long peak_kb() {
  std::ifstream status("/proc/self/status");
  std::string word;
  long size = 0;
  while (status >> word) {
    if (word == "VmHWM:") status >> size;
  }
  return size;
}

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json to_json(const StatisticsResult& result) {
  Json all = Json::object();
  for (const Statistic& statistic : result.all) {
    all[std::string(name_of(statistic.kind))] = {{"value", statistic.value},
                                                 {"limit", statistic.limit},
                                                 {"score", statistic.score()},
                                                 {"index", statistic.index},
                                                 {"where", statistic.where}};
  }
  Json json = {{"equal", result.equal},
               {"nonfinite_mismatch", result.nonfinite_mismatch},
               {"differs", result.differs()},
               {"elements", result.elements},
               {"all", all},
               {"decided", name_of(result.worst().kind)},
               {"sigma", result.sigma},
               {"nu", result.relative_noise},
               {"error", result.error},
               {"factor", result.factor},
               {"factor_error", result.factor_error},
               {"rounding_only", result.rounding_only}};
  json["resolution"] = {{"norm", result.resolution.norm},
                        {"factor", number_or_null(result.resolution.factor)},
                        {"shard", number_or_null(result.resolution.shard)},
                        {"element", result.resolution.element}};
  if (result.pooled) {
    json["pooled"] = {result.pooled->z, result.pooled->effect, result.pooled->nu};
  }
  return json;
}

Json run_case(Tensors& tensors, const Json& json) {
  const auto shape = json.at("shape").get<Shape>();
  StatisticsInput input;
  input.reference = tensors.get(json.at("reference"), shape);
  input.candidate = tensors.get(json.at("candidate"), shape);
  for (const Json& noise : json.at("noise")) input.noise.push_back(tensors.get(noise, shape));
  input.epsilon = json.at("epsilon").get<double>();
  input.scale = json.value("scale", 1.0);
  input.floor = json.value("floor", 0.0);
  input.gain = json.value("gain", 1.0);
  input.tensor = class_of(json.value("class", "ordinary"));
  input.method = json.value("method", "local") == "local" ? Method::local : Method::envelope;
  ExtraNoise extra;
  if (json.contains("extra")) {
    extra.width = json["extra"].at("width").get<std::uint64_t>();
    extra.squares = json["extra"].at("squares").get<std::vector<double>>();
    input.extra = &extra;
  }
  return to_json(statistics(input, {}));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: statistics_of FOLDER < JOB\n";
    return 2;
  }
  try {
    const Json job = Json::parse(std::cin);
    Tensors tensors(argv[1]);
    for (const Json& json : job.at("cases")) {
      tensors.announce(json.at("reference"));
      tensors.announce(json.at("candidate"));
      for (const Json& noise : json.at("noise")) tensors.announce(noise);
    }
    tensors.write();
    Json results = Json::array();
    for (const Json& json : job.at("cases")) results.push_back(run_case(tensors, json));
    std::cout << Json{{"results", results}, {"peak_kb", peak_kb()}}.dump() << "\n";
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "statistics_of: " << error.what() << "\n";
    return 2;
  }
}
