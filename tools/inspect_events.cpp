// SPDX-License-Identifier: Apache-2.0
#include "tools/inspect_events.hpp"

#include <string>

#include "invariant/events_export.hpp"
#include "invariant/events_reader.hpp"
#include "invariant/report.hpp"
#include "invariant/traincheck_writer.hpp"
#include "libttrace/core/trouble.hpp"
#include "tools/cli.hpp"

namespace ttrace {

namespace fs = std::filesystem;

void export_to_traincheck(const fs::path& trace, const fs::path& folder) {
  if (fs::exists(folder) && !(fs::is_directory(folder) && fs::is_empty(folder))) {
    throw Trouble("--traincheck", folder.string(), "is not empty, choose a new folder");
  }
  invariant::Records records = invariant::read_events(trace, {.call_ids = true});
  for (const invariant::Damage& damage : records.damage) {
    note(damage.file + ": left out " + invariant::damage_text(damage));
  }
  invariant::arrange_as_traincheck(records);
  invariant::write_traincheck(folder, records);
  // Whoever reads the files has no Python at hand.
  records.signatures.write(folder / "signatures.json", records.values);
}

}  // namespace ttrace
