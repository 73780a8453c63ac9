// SPDX-License-Identifier: Apache-2.0
// The trainer whose groups communicate through shared memory.
#include "samples/cpp/trainer.hpp"

int main(int argc, char** argv) {
  return trainer_main(
      argc, argv, [](const Mesh& mesh, Bug) { return mesh; }, false);
}
