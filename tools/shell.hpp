// SPDX-License-Identifier: Apache-2.0
// Commands as text for a shell, and the words of such a text.
#pragma once

#include <string>
#include <vector>

namespace ttrace {

// One word in quotes, whatever it is.
[[nodiscard]] std::string single_quoted(const std::string& word);
// One word, quoted where a shell would see more in it.
[[nodiscard]] std::string shell_quoted(const std::string& word);
[[nodiscard]] std::string shell_line(const std::vector<std::string>& words);

// The words in a text that sh would run, without their quotes. Nothing is expanded: good enough to
// find out which files it names, not to run it.
[[nodiscard]] std::vector<std::string> shell_words(const std::string& text);

}  // namespace ttrace
