// SPDX-License-Identifier: Apache-2.0
// A .pth file in a Python's site-packages runs at the start of that Python even when it ignores
// PYTHONPATH (python -I, -E). It does nothing unless TTRACE_AGENT is set.
#pragma once

#include <string>

namespace ttrace {

// `python` is a command; both print the file's path. Throw Trouble.
void install_pth(const std::string& python);
void uninstall_pth(const std::string& python);

}  // namespace ttrace
