// SPDX-License-Identifier: Apache-2.0
extern "C" int which_library() { return 2; }
extern "C" int last_library() { return 2; }
