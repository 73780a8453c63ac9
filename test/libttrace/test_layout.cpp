// SPDX-License-Identifier: Apache-2.0
// Layouts against plain loops: what each cut means is written down in layout_oracle.hpp a second
// time, as index lists, and shards that those lists cut must merge back bit for bit.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "libttrace/core/trouble.hpp"
#include "libttrace/layout.hpp"
#include "test/catch.hpp"
#include "test/libttrace/layout_oracle.hpp"

using namespace ttrace;
using namespace ttrace::testing;

namespace {

Indices indices_of(const std::vector<Run>& runs) {
  Indices list;
  for (const Run& run : runs) {
    REQUIRE(run.local == list.size());
    for (std::uint64_t i = 0; i < run.count; ++i) list.push_back(run.global + i);
  }
  return list;
}

std::vector<Cut> cuts_of(const std::string& dim) { return parse_dims(dim).dims.at(0); }

Coordinates at(std::uint64_t coord, std::uint64_t size) { return {{"tp", {coord, size}}}; }

struct Case {
  Shape shape;
  Layout layout;
  std::vector<Coordinates> ranks;
};

// A random mesh of up to three axes, each of which cuts one dimension or replicates.
Case random_case(std::mt19937_64& random) {
  const auto below = [&random](std::uint64_t n) { return random() % n; };
  Case made;
  const std::size_t ndim = 1 + below(4);
  for (std::size_t dim = 0; dim < ndim; ++dim) made.shape.push_back(1 + below(9));
  made.layout.dims.resize(ndim);
  std::vector<std::uint64_t> sizes;
  const std::vector<std::string> names{"tp", "cp", "dp"};
  for (std::size_t axis = 0; axis < names.size(); ++axis) {
    sizes.push_back(1 + below(4));
    const std::size_t dim = below(ndim + 1);
    if (dim == ndim) continue;
    auto& cuts = made.layout.dims[dim];
    Cut cut{names[axis], CutKind::shard, 1, {}};
    // Only the outermost cut may be irregular here, so that the extent can be made to fit it.
    const std::uint64_t kind = cuts.empty() ? below(4) : 0;
    std::uint64_t& extent = made.shape[dim];
    if (kind == 1) {
      cut.kind = CutKind::zigzag;
      extent = 2 * sizes[axis] * (1 + below(3));
    } else if (kind == 2) {
      cut.kind = CutKind::strided;
      cut.parts = 2 + below(3);
      extent = cut.parts * (1 + below(5));
    } else if (kind == 3) {
      cut.kind = CutKind::sections;
      cut.sections = {1 + below(6), 1 + below(4), 1 + below(4)};
      extent = cut.sections[0] + cut.sections[1] + cut.sections[2];
    }
    cuts.push_back(cut);
  }
  for (std::uint64_t rank = 0; rank < sizes[0] * sizes[1] * sizes[2]; ++rank) {
    made.ranks.push_back({{"tp", {rank % sizes[0], sizes[0]}},
                          {"cp", {rank / sizes[0] % sizes[1], sizes[1]}},
                          {"dp", {rank / sizes[0] / sizes[1], sizes[2]}}});
  }
  return made;
}

// The logical index of each element of the rank's shard, and the shard's shape.
Indices shard_oracle(const Case& made, const Coordinates& where, Shape& local_shape) {
  std::vector<Indices> lists;
  local_shape.clear();
  for (std::size_t dim = 0; dim < made.shape.size(); ++dim) {
    lists.push_back(dim_oracle(made.shape[dim], made.layout.dims[dim], where));
    local_shape.push_back(lists.back().size());
  }
  Indices elements;
  for_each_index(local_shape, [&](const Shape& local) {
    Shape global;
    for (std::size_t dim = 0; dim < local.size(); ++dim) global.push_back(lists[dim][local[dim]]);
    elements.push_back(linear(global, made.shape));
  });
  return elements;
}

// Where each element of the shard goes according to its pieces; fails unless all go exactly once.
Indices follow_pieces(const std::vector<Piece>& pieces, const Shape& local_shape,
                      const Shape& global_shape) {
  constexpr std::uint64_t kNowhere = ~std::uint64_t{0};
  Indices target(element_count(local_shape), kNowhere);
  std::uint64_t twice = 0;
  for (const Piece& piece : pieces) {
    std::uint64_t in_piece = 0;
    for_each_index(piece.global.count, [&](const Shape& offset) {
      Shape global = piece.global.start;
      Shape local = piece.local_start;
      for (std::size_t dim = 0; dim < global.size(); ++dim) global[dim] += offset[dim];
      if (local.size() == 1) {
        local[0] += in_piece++;  // one dimension or flat: contiguous
      } else {
        for (std::size_t dim = 0; dim < local.size(); ++dim) local[dim] += offset[dim];
      }
      std::uint64_t& slot = target.at(linear(local, local_shape));
      if (slot != kNowhere) ++twice;
      slot = linear(global, global_shape);
    });
  }
  REQUIRE(twice == 0);
  REQUIRE(std::count(target.begin(), target.end(), kNowhere) == 0);
  return target;
}

}  // namespace

TEST_CASE("dims strings print as they were read, without names") {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"s[cp:zigzag,tp] b h[tp2:/2]", "[cp:zigzag,tp] - [tp2:/2]"},
      {"h[tp] d partial(cp)", "[tp] - partial(cp)"},
      {"[tp:(64,32,32)]", "[tp:(64,32,32)]"},
      {"t[cp:zigzag(8,12),tp] h", "[cp:zigzag(8,12),tp] -"},
      {"t[cp:zigzag(@input.cu_seqlens)] h[tp]", "[cp:zigzag(@input.cu_seqlens)] [tp]"},
      {"t[cp:(@input.1.offsets)]", "[cp:(@input.1.offsets)]"},
      {"  -   [dp:/2,tp]  ", "- [dp:/2,tp]"},
      {"h[tp/outer2] partial(cp,dp)", "[tp/outer2] partial(cp,dp)"},
      {"b s[tp] h swap(1,0)", "- [tp] - swap(0,1)"},
      {"b s partial(tp) swap(0,1)", "- - swap(0,1) partial(tp)"},
      {"partial", "-"},
      {"partial(tp)", "partial(tp)"},
      {"", ""},
  };
  for (const auto& [text, printed] : cases) {
    CAPTURE(text);
    const Layout layout = parse_dims(text);
    CHECK(to_string(layout) == printed);
    CHECK(parse_dims(printed) == layout);
  }
}

TEST_CASE("a malformed dims string is refused with the column of the mistake") {
  const std::vector<std::pair<std::string, int>> cases{
      {"h[tp", 5},
      {"h[]", 3},
      {"h[tp]d", 6},
      {"h]", 2},
      {"[tp:]", 5},
      {"[tp:/0]", 6},
      {"[tp:/]", 6},
      {"[tp:(1,)]", 8},
      {"[tp:(1", 7},
      {"[tp:flat]", 5},
      {"[cp:zigzag()]", 12},
      {"[cp:zigzag(8,]", 14},
      {"[cp:zigzag(8,0)]", 14},
      {"[cp:zigzag(@)]", 13},
      {"[cp:(@a,b)]", 8},
      {"[cp:zigzag8]", 11},
      {"[tp:zag]", 5},
      {"[tp] [tp]", 7},
      {"partial(", 9},
      {"partial(tp", 11},
      {"[tp] partial(tp)", 14},
      {"a\tb", 2},
      {"[tp:/99999999999999999999]", 6},
      {"b s swap(0,0)", 14},
      {"b s swap(0,2)", 14},
      {"b s swap(0)", 11},
  };
  for (const auto& [text, column] : cases) {
    CAPTURE(text);
    std::string message;
    try {
      (void)parse_dims(text);
    } catch (const Trouble& trouble) {
      message = trouble.what();
    }
    CHECK(message.find("column " + std::to_string(column) + ":") != std::string::npos);
  }
}

TEST_CASE("the JSON of a layout reads back equal") {
  Layout layout = parse_dims("h[tp:/2] d partial(cp)");
  layout.global_shape = Shape{256, 64};
  layout.flat = FlatRange{{128, 64}, 100, 4096};
  layout.source = "megatron";
  CHECK(layout_from_json(layout_to_json(layout)) == layout);
  CHECK(layout_from_json(R"({"dims":"h[tp]"})") == parse_dims("[tp]"));
  CHECK(layout_from_json(R"({"dims":"h[tp]","later":{"x":[1]}})") == parse_dims("[tp]"));
}

TEST_CASE("a layout whose JSON is wrong is trouble") {
  for (const std::string text :
       {"", "[]", "{}", R"({"dims":3})", R"({"dims":"h["})", R"({"dims":"h","shape":[1,2]})",
        R"({"dims":"h","shape":[-1]})", R"({"dims":"h","shape":"3"})",
        R"({"dims":"h","flat":{"shape":[3],"start":0}})", R"({"dims":"h","source":1})",
        R"({"dims":"h","flat":{"shape":[3,3],"start":0,"count":1}})"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(layout_from_json(text), Trouble);
  }
}

TEST_CASE("a plain cut of 10 elements over 4 ranks is torch.chunk: 3, 3, 3, 1") {
  CHECK(runs_of(10, cuts_of("[tp]"), at(1, 4)) == std::vector<Run>{{0, 3, 3}});
  CHECK(runs_of(10, cuts_of("[tp]"), at(3, 4)) == std::vector<Run>{{0, 1, 9}});
  CHECK(runs_of(5, cuts_of("[tp]"), at(3, 4)).empty());  // 2, 2, 1, 0
  CHECK(runs_of(0, cuts_of("-"), {}).empty());
}

TEST_CASE("each cut gives the runs that its definition says") {
  CHECK(runs_of(16, cuts_of("[tp:zigzag]"), at(1, 2)) == std::vector<Run>{{0, 8, 4}});
  CHECK(runs_of(16, cuts_of("[tp:zigzag]"), at(0, 2)) == std::vector<Run>{{0, 4, 0}, {4, 4, 12}});
  CHECK(runs_of(8, cuts_of("[tp:/2]"), at(1, 2)) == std::vector<Run>{{0, 2, 2}, {2, 2, 6}});
  CHECK(runs_of(8, cuts_of("[tp:(4,2,2)]"), at(0, 2)) ==
        std::vector<Run>{{0, 2, 0}, {2, 1, 4}, {3, 1, 6}});
  // Documents of 8 and 4: chunks of 2 and of 1, the middle ones are neighbours.
  CHECK(runs_of(12, cuts_of("[tp:zigzag(8,4)]"), at(0, 2)) ==
        std::vector<Run>{{0, 2, 0}, {2, 3, 6}, {5, 1, 11}});
  CHECK(runs_of(12, cuts_of("[tp:zigzag(8,4)]"), at(1, 2)) ==
        std::vector<Run>{{0, 4, 2}, {4, 2, 9}});
  CHECK(runs_of(8, cuts_of("[other]"), at(1, 2)) == std::vector<Run>{{0, 8, 0}});
  CHECK(runs_of(8, cuts_of("[tp/outer2]"), at(1, 4)) == std::vector<Run>{{0, 4, 0}});
  CHECK(runs_of(8, cuts_of("[tp/inner2]"), at(1, 4)) == std::vector<Run>{{0, 4, 4}});
}

TEST_CASE("a cut that does not divide as it must is trouble") {
  CHECK_THROWS_AS(runs_of(6, cuts_of("[tp:zigzag]"), at(0, 2)), Trouble);
  CHECK_THROWS_AS(runs_of(7, cuts_of("[tp:/2]"), at(0, 2)), Trouble);
  CHECK_THROWS_AS(runs_of(7, cuts_of("[tp:(4,2)]"), at(0, 2)), Trouble);
  CHECK_THROWS_AS(runs_of(5, cuts_of("[tp:(4,2)]"), at(0, 2)), Trouble);
  CHECK_THROWS_AS(runs_of(12, cuts_of("[tp:zigzag(8,8)]"), at(0, 2)), Trouble);
  CHECK_THROWS_AS(runs_of(12, cuts_of("[tp:zigzag(4,4)]"), at(0, 2)), Trouble);
  CHECK_THROWS_AS(runs_of(12, cuts_of("[tp:zigzag(6,6)]"), at(0, 2)), Trouble);
  CHECK_THROWS_AS(runs_of(12, cuts_of("[tp:zigzag(@input.1)]"), at(0, 2)), Trouble);
  CHECK_THROWS_AS(runs_of(12, cuts_of("[tp:(@input.1)]"), at(0, 2)), Trouble);
  CHECK_THROWS_AS(runs_of(8, cuts_of("[tp]"), at(2, 2)), Trouble);
  CHECK_THROWS_AS(runs_of(8, cuts_of("[tp/outer3]"), at(0, 4)), Trouble);
}

TEST_CASE("runs of all kinds, sizes and nestings equal the index lists") {
  for (const std::string dims :
       {"[tp]", "[tp:/1]", "[tp:/3]", "[tp:zigzag]", "[tp:(13,1,10)]", "[tp,cp]", "[tp:zigzag,cp]",
        "[cp,tp:/2]", "[cp:zigzag,tp:/2]", "[tp:/3,cp:zigzag]", "[cp:/2,tp]", "[tp:(10,5,9),cp]",
        "[tp:zigzag(4,12,8)]", "[tp:zigzag(16,8),cp:zigzag]"}) {
    for (const std::uint64_t extent : {24u, 48u}) {
      for (std::uint64_t rank = 0; rank < 4; ++rank) {
        const Coordinates where{{"tp", {rank / 2, 2}}, {"cp", {rank % 2, 2}}};
        if (extent == 48 && dims.find('(') != std::string::npos) continue;
        CAPTURE(dims, extent, rank);
        const std::vector<Run> runs = runs_of(extent, cuts_of(dims), where);
        CHECK(indices_of(runs) == dim_oracle(extent, cuts_of(dims), where));
      }
    }
  }
}

TEST_CASE("a shard whose shape the layout does not give is trouble that names both shapes") {
  const Layout layout = parse_dims("[tp] -");
  CHECK_THROWS_WITH(pieces_of(layout, {8, 4}, {8, 4}, at(0, 2)),
                    Catch::Contains("4x4 of 8x4") && Catch::Contains("shard is 8x4"));
  CHECK_THROWS_AS(pieces_of(layout, {8}, {4}, at(0, 2)), Trouble);
}

TEST_CASE("a scalar is one piece") {
  const std::vector<Piece> pieces = pieces_of({}, {}, {}, at(1, 2));
  REQUIRE(pieces.size() == 1);
  CHECK(volume(pieces[0].global) == 1);
}

TEST_CASE("boxes of random layouts and meshes cover exactly once and merge bit for bit") {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    std::mt19937_64 random(seed);
    const Case made = random_case(random);
    CAPTURE(seed, to_string(made.layout), made.shape);
    std::map<Indices, bool> seen;
    std::vector<Box> boxes;
    std::vector<int> written(element_count(made.shape), 0);
    for (const Coordinates& where : made.ranks) {
      Shape local_shape;
      const Indices truth = shard_oracle(made, where, local_shape);
      const auto pieces = pieces_of(made.layout, made.shape, local_shape, where);
      REQUIRE(follow_pieces(pieces, local_shape, made.shape) == truth);
      if (truth.empty() || !seen.emplace(truth, true).second) continue;  // nothing, or a replica
      for (const Piece& piece : pieces) boxes.push_back(piece.global);
      for (const std::uint64_t element : truth) ++written[element];
    }
    REQUIRE(written == std::vector<int>(written.size(), 1));
    REQUIRE(coverage(made.shape, boxes).exact());
  }
}

TEST_CASE("flat ranges that share a shard give each element once") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    const Case made = random_case(random);
    CAPTURE(seed, to_string(made.layout), made.shape);
    const Coordinates& where = made.ranks[random() % made.ranks.size()];
    Shape shard_shape;
    const Indices truth = shard_oracle(made, where, shard_shape);
    Indices merged;
    while (merged.size() < truth.size()) {
      Layout layout = made.layout;
      const std::uint64_t rest = truth.size() - merged.size();
      layout.flat = FlatRange{shard_shape, merged.size(), 1 + random() % rest};
      const Shape local_shape{layout.flat->count};
      const auto pieces = pieces_of(layout, made.shape, local_shape, where);
      const Indices part = follow_pieces(pieces, local_shape, made.shape);
      merged.insert(merged.end(), part.begin(), part.end());
    }
    REQUIRE(merged == truth);
  }
}

TEST_CASE("a flat range of an uncut tensor needs at most 2 * ndim - 1 boxes") {
  Layout layout = parse_dims("- - -");
  const Shape shape{4, 5, 6};
  for (std::uint64_t start = 0; start < 120; ++start) {
    for (std::uint64_t count = 0; start + count <= 120; ++count) {
      layout.flat = FlatRange{shape, start, count};
      const auto pieces = pieces_of(layout, shape, {count}, {});
      REQUIRE(pieces.size() <= 5);
      const Indices target = follow_pieces(pieces, {count}, shape);
      Indices expected(count);
      std::iota(expected.begin(), expected.end(), start);
      REQUIRE(target == expected);
    }
  }
}

TEST_CASE("a flat range that does not fit the shard is trouble") {
  Layout layout = parse_dims("[tp] -");
  layout.flat = FlatRange{{2, 3}, 4, 3};
  CHECK_THROWS_AS(pieces_of(layout, {4, 3}, {3}, at(0, 2)), Trouble);
  layout.flat = FlatRange{{2, 3}, 4, 2};
  CHECK_THROWS_AS(pieces_of(layout, {4, 3}, {3}, at(0, 2)), Trouble);
  CHECK_THROWS_AS(pieces_of(layout, {6, 3}, {2}, at(0, 2)), Trouble);
  CHECK(pieces_of(layout, {4, 3}, {2}, at(0, 2)).size() == 1);
}
