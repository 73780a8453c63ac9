// SPDX-License-Identifier: Apache-2.0
// Traces for tests: files in a folder of their own that goes away.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace trace_folder {

class Folder {
 public:
  Folder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("ttrace-test-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// Lines as TrainCheck writes them.
// clang-format off
inline constexpr const char* pre =
    R"json({"func_call_id": "5ac1_12149", "thread_id": 1398926, "process_id": 16789, "meta_vars": {"step": 5, "stage": "testing"}, )json"
    R"json("type": "function_call (pre)", "function": "torch.nn.modules.dropout.Dropout.forward", "is_bound_method": true, "obj_id": 1398914, )json"
    R"json("proxy_obj_names": [["model.fc1.weight", "Parameter"]], "args": {"0": {"torch.nn.modules.dropout.Dropout": {"p": 0.25, "training": true}}, )json"
    R"json("1": {"torch.FloatTensor": {"_TRAINCHECK_data_ID": 1398915, "dtype": "torch.float32", "grad": null, "shape": [8, 144]}}}, "kwargs": {}, "time": 1214974703222})json";
inline constexpr const char* post =
    R"json({"func_call_id":"5ac1_12149","thread_id":1398926,"process_id":16789,"meta_vars":{"step":5,"stage":"testing"},"type":"function_call (post)",)json"
    R"json("function":"torch.nn.modules.dropout.Dropout.forward","is_bound_method":true,"obj_id":1398914,"return_values":[{"int":16},{"int":48}],"time":1214974803222})json";
inline constexpr const char* raised =
    R"json({"func_call_id":"c9_29","thread_id":7,"process_id":3,"meta_vars":{},"type":"function_call (post) (exception)","function":"torch.optim.adadelta.Adadelta.__init__",)json"
    R"json("exception":"ValueError","exception_msg":"Invalid learning rate: -1.0","is_bound_method":true,"obj_id":null,"time":29725})json";
inline constexpr const char* state =
    R"json({"var_name": "model.fc1.weight", "var_type": "torch.nn.Parameter", "mode": "update", "dump_loc": "initing", "process_id": 14001, "thread_id": 140310336179072, )json"
    R"json("time": 1002752728587, "meta_vars": {"step": 0, "stage": "init"}, "attributes": {"_TRAINCHECK_data_ID": 140309101383584, "data": 7904740818771230624, )json"
    R"json("grad": null, "is_cpu": true, "name": null, "shape": [32, 16]}, "type": "state_change"})json";
// clang-format on

}  // namespace trace_folder
