// SPDX-License-Identifier: Apache-2.0
// Where a result goes: text to stdout, and documents to files or, alone, to stdout.
#pragma once

#include <string>

namespace ttrace {

struct OutputPaths {
  std::string json, junit;  // "": nobody asked for it; "-": stdout
  bool quiet = false;       // no text

  // Nothing else may come between a document and whoever reads it.
  [[nodiscard]] bool document_on_stdout() const { return json == "-" || junit == "-"; }
  [[nodiscard]] bool wants_text() const { return !quiet && !document_on_stdout(); }
};

struct Outputs {
  std::string text, json, junit;  // only what paths ask for is used
};

// Throws Trouble: both documents are to go to stdout.
void check_paths(const OutputPaths& paths);

// Files first: a document on stdout cannot be taken back when writing a file fails. Throws Trouble.
void write_outputs(const Outputs& outputs, const OutputPaths& paths);

// Whoever asked for a document gets one, whatever happened. Throws nothing: the trouble that is
// told is the one that matters.
void write_trouble(const Outputs& outputs, OutputPaths paths);

}  // namespace ttrace
