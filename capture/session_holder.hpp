// SPDX-License-Identifier: Apache-2.0
// The one session of a process. It is never destroyed: calls may come as late as in the destructors
// of the program's own static objects.
#pragma once

namespace ttrace {

class Session;
[[nodiscard]] Session& session();

}  // namespace ttrace
