# SPDX-License-Identifier: Apache-2.0
"""samples/nccl under the recorder, in the trees with a sanitizer too."""
import collections
import unittest

import numpy

from nccl_runs import BUILD, NcclTest


class Trainer(NcclTest):
    """samples/nccl, whose ranks are forks of one process: what comes out of every sum is one."""

    def test_four_ranks(self):
        trainer = BUILD / "samples" / "nccl" / "trainer"
        self.capture([trainer, "--tp", "2", "--dp", "2", "--iters", "2"], FAKE_CUDA_LAZY="1")
        sums = collections.defaultdict(list)
        for rank in range(4):
            for call in self.calls(rank):
                if call.function == "all_reduce":
                    sums[call.group, call.sequence].append(call)
        self.assertGreater(len(sums), 50)
        for members in sums.values():
            self.assertEqual(len(members), members[0].size)
            exact = numpy.sum([numpy.array(call.input) for call in members], axis=0)
            scale = numpy.sum([numpy.abs(call.input) for call in members], axis=0)
            for call in members:
                self.assertTrue((numpy.abs(exact - call.output) <= 2**-22 * scale).all(), call)


if __name__ == "__main__":
    unittest.main()
