// SPDX-License-Identifier: Apache-2.0
// Small traces for tests, event by event; read through TrainCheck's files.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "invariant/record.hpp"
#include "invariant/signature.hpp"
#include "invariant/traincheck_reader.hpp"
#include "test/invariant/trace_folder.hpp"

namespace event_log {

struct Where {
  int process = 1;
  int thread = 1;
  int step = 0;
  std::string stage;  // "": none
};

class Log {
 public:
  Where here;

  // A call from `begin` to `end`; -1: it never ended. Arguments and results as JSON.
  void call(const std::string& function, int begin, int end, const std::string& args = "{}",
            const std::string& returns = R"({"NoneType": null})",
            const std::string& more = R"("obj_id": null, )") {
    const std::string id = std::to_string(here.process) + "u" + std::to_string(here.thread) + "_" +
                           std::to_string(1000000 + begin);
    const std::string common = R"({"func_call_id": ")" + id + R"(", "function": ")" + function +
                               R"(", )" + more + place() + R"(, "type": "function_call )";
    add(begin, common + R"j((pre)", "args": )j" + args + R"(, "kwargs": {}, "time": )" +
                   std::to_string(begin) + "}");
    if (end < 0) return;
    const std::string result =
        returns == "raises" ? R"j((post) (exception)", "exception": "E", "exception_msg": "x")j"
                            : R"j((post)", "return_values": )j" + returns;
    add(end, common + result + R"(, "time": )" + std::to_string(end) + "}");
  }

  void state(const std::string& variable, int time, const std::string& attributes,
             const std::string& type = "torch.nn.Parameter") {
    add(time, R"({"var_name": ")" + variable + R"(", "var_type": ")" + type +
                  R"(", "mode": "update", "attributes": )" + attributes + ", " + place() +
                  R"(, "type": "state_change", "time": )" + std::to_string(time) + "}");
  }

  // In the order of time.
  [[nodiscard]] ttrace::invariant::Records read(ttrace::invariant::Values& values) const {
    std::vector<std::pair<int, std::string>> lines = lines_;
    std::ranges::stable_sort(lines, {}, [](const auto& line) { return line.first; });
    std::string text;
    for (const auto& line : lines) text += line.second + "\n";
    const trace_folder::Folder folder;
    folder.write("trace_API_1_1.log", text);
    return ttrace::invariant::read_traincheck(folder.path(), values);
  }

 private:
  [[nodiscard]] std::string place() const {
    return R"("process_id": )" + std::to_string(here.process) + R"(, "thread_id": )" +
           std::to_string(here.thread) + R"(, "meta_vars": {"step": )" + std::to_string(here.step) +
           (here.stage.empty() ? "" : R"(, "stage": ")" + here.stage + "\"") + "}";
  }
  void add(int time, std::string line) { lines_.emplace_back(time, std::move(line)); }

  std::vector<std::pair<int, std::string>> lines_;
};

inline ttrace::invariant::Signatures signatures(const std::string& json,
                                                ttrace::invariant::Values& values) {
  const trace_folder::Folder folder;
  return ttrace::invariant::Signatures::read(folder.write("signatures.json", json), values);
}

}  // namespace event_log
