# SPDX-License-Identifier: Apache-2.0
"""ttrace-capture with real processes: exit codes, signals, full disks, refused ranks."""
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy

BUILD = pathlib.Path(os.environ["TTRACE_BUILD"])
CAPTURE = BUILD / "tools/ttrace-capture"
CLIENT = BUILD / "test/capture/abi_client"
LIMIT_SECONDS = 120
RANK_VARIABLES = ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def environment(**more):
    kept = {name: value for name, value in os.environ.items()
            if name not in RANK_VARIABLES and not name.startswith("TTRACE_")}
    return {**kept, **more}


def mount_small_disk(folder, size):
    """A disk of `size`; False where this user may not mount."""
    return subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder],
                          stderr=subprocess.DEVNULL).returncode == 0


class Capture(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="ttrace-test-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.trace = self.folder / "run.trace"

    def capture(self, *command, options=(), **settings):
        settings.setdefault("env", environment())
        words = [str(word) for word in (CAPTURE, "-o", self.trace, *options, "--", *command)]
        return subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_SECONDS,
                              **settings)

    def start(self, *command, options=(), **settings):
        settings.setdefault("env", environment())
        words = [str(word) for word in (CAPTURE, "-o", self.trace, *options, "--", *command)]
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, **settings)

    def rank(self, number=0):
        return json.loads((self.trace / f"rank{number:05d}/rank.json").read_text())

    def segment(self, iteration=0, number=0):
        return h5py.File(self.trace / f"rank{number:05d}/it{iteration:06d}.h5", "r")


class ExitCodes(Capture):
    def test_the_commands_exit_code_is_kept(self):
        for code in (1, 5, 255):
            with self.subTest(code):
                done = self.capture("sh", "-c", f"exit {code}", options=["--overwrite"])
                self.assertEqual(done.returncode, code, done.stderr)

    def test_death_by_a_signal_is_128_more(self):
        self.assertEqual(self.capture("sh", "-c", "kill -9 $$").returncode, 128 + 9)

    def test_a_command_that_is_not_there_is_127_and_not_executable_126(self):
        done = self.capture("no-such-command-at-all")
        self.assertEqual(done.returncode, 127)
        self.assertIn("no-such-command-at-all", done.stderr)
        self.assertEqual(self.capture("/etc/passwd").returncode, 126)

    def test_nothing_captured_is_2_and_loud(self):
        done = self.capture("true")
        self.assertEqual(done.returncode, 2)
        self.assertIn("nothing was captured", done.stderr)
        self.assertIn("--install-pth", done.stderr)

    def test_an_iteration_that_never_comes_is_named(self):
        done = self.capture(CLIENT, "iterations", options=["--iterations", "9"])
        self.assertEqual(done.returncode, 2)
        self.assertIn("--iterations 9", done.stderr)

    def test_nothing_captured_does_not_hide_another_exit_code(self):
        self.assertEqual(self.capture("false").returncode, 1)

    def test_mistakes_on_the_command_line_are_2(self):
        for options in (["--iterations", "x"], ["--ring", "64Q"], ["--what", "everything"],
                        ["--init-from", "seed:"], ["--no-such-option"], ["--filter"],
                        ["--layout", self.folder / "none"], ["--install-pth", "/no/python"]):
            with self.subTest(options):
                done = self.capture("touch", self.folder / "ran", options=options)
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, r"\Attrace-capture: [^\n]+, [^\n]+\n\Z")
                self.assertFalse(self.trace.exists())
                self.assertFalse((self.folder / "ran").exists())
        done = subprocess.run([CAPTURE, "-o", self.trace], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no command", done.stderr)

    def test_output_goes_through_unchanged_and_the_pipe_ends_with_the_command(self):
        done = self.capture(CLIENT, "fill", "3")
        self.assertEqual((done.returncode, done.stdout), (0, "recorded all\n"), done.stderr)


class Directory(Capture):
    def test_a_trace_is_described(self):
        self.assertEqual(self.capture(CLIENT, "fill", "3").returncode, 0)
        trace = json.loads((self.trace / "trace.json").read_text())
        self.assertEqual(trace["format"], "ttrace-trace")
        self.assertEqual(trace["command"], [str(CLIENT), "fill", "3"])
        self.assertEqual(trace["exit_code"], 0)
        self.assertEqual(trace["options"]["iterations"], [[0, 0]])
        self.assertLessEqual(trace["started"], trace["finished"])
        self.assertEqual(self.rank()["run_id"], trace["run_id"])
        self.assertEqual(self.rank()["records"], 3)

    def test_a_trace_is_not_overwritten_unless_asked(self):
        self.assertEqual(self.capture(CLIENT, "fill", "3").returncode, 0)
        before = (self.trace / "trace.json").read_text()
        done = self.capture(CLIENT, "fill", "4")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--overwrite", done.stderr)
        self.assertEqual((self.trace / "trace.json").read_text(), before)

        self.assertEqual(self.capture(CLIENT, "fill", "4", options=["--overwrite"]).returncode, 0)
        self.assertEqual(self.rank()["records"], 4)

    def test_a_directory_with_other_files_is_never_deleted(self):
        self.trace.mkdir()
        (self.trace / "thesis.tex").write_text("years of work")
        done = self.capture("true", options=["--overwrite"])
        self.assertEqual(done.returncode, 2)
        self.assertIn("thesis.tex", done.stderr)
        self.assertTrue((self.trace / "thesis.tex").exists())

    def test_iterations_and_ranks_are_selected(self):
        done = self.capture(CLIENT, "iterations", options=["--iterations", "1-2"])
        self.assertEqual((done.returncode, done.stdout), (0, "-1 0 0 -1 "), done.stderr)
        names = sorted(path.name for path in (self.trace / "rank00000").glob("*.h5"))
        self.assertEqual(names, ["it000001.h5", "it000002.h5"])

        done = self.capture(CLIENT, "iterations", options=["--overwrite", "--ranks", "1-3"])
        self.assertFalse((self.trace / "rank00000").exists())

    def test_estimate_prints_bytes_and_records_nothing(self):
        done = self.capture(CLIENT, "fill", "10", options=["--estimate"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("forward          655.4 KB", done.stdout)
        self.assertEqual(list(self.trace.glob("rank*/*.h5")), [])

    def records(self, *options):
        """module -> kind, by the index."""
        done = self.capture(CLIENT, "chosen", options=["--overwrite", *options])
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        with self.segment() as segment:
            names = [name.decode() for name in segment["names"][()]]
            return {names[row["module"]]: int(row["kind"]) for row in segment["index"][()]}

    def test_filters_and_kinds_apply_to_c_programs_but_not_to_the_models_tokens(self):
        full, stats, hashed = 0, 1, 2
        self.assertEqual(self.records(), {"a.x": full, "a.y": full, "b.x": full, "@root": full})
        self.assertEqual(self.records("--filter", "a.*"), {"a.x": full, "a.y": full, "@root": full})
        self.assertEqual(self.records("--filter", "forward/*", "--filter", "!*/a.?/*"),
                         {"b.x": full, "@root": full})
        self.assertEqual(self.records("--filter", "nothing"), {"@root": full})
        self.assertEqual(self.records("--what", "stats", "--filter", "!a.*"),
                         {"b.x": stats, "@root": full})
        self.assertEqual(self.records("--what", "hash"),
                         {"a.x": hashed, "a.y": hashed, "b.x": hashed, "@root": full})

    def test_estimates_count_what_options_let_through(self):
        for options, words in ((["--filter", "a.*"], r"forward +16 B\n"),
                               (["--what", "hash"], r"forward +8 B\n")):
            done = self.capture(CLIENT, "chosen", options=["--overwrite", "--estimate", *options])
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, words)

    def test_the_printed_environment_captures_without_the_launcher(self):
        done = subprocess.run([CAPTURE, "-o", self.trace, "--print-env"], capture_output=True,
                              text=True, env=environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        script = done.stdout + f"exec {CLIENT} fill 2"
        for rank in (0, 1):
            subprocess.run(["sh", "-c", script], check=True, timeout=LIMIT_SECONDS,
                           stdout=subprocess.DEVNULL,
                           env=environment(RANK=str(rank), WORLD_SIZE="2"))
        self.assertEqual([self.rank(rank)["records"] for rank in (0, 1)], [2, 2])
        self.assertEqual(self.rank(1)["world_size"], 2)
        self.assertEqual(self.rank(0)["run_id"], self.rank(1)["run_id"])


class Signals(Capture):
    def test_signals_reach_the_command(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(number):
                # No pause(): a signal between its last check and the call would be slept through.
                script = ("import signal, sys, time\n"
                          f"signal.signal({int(number)}, lambda *_: sys.exit(40))\n"
                          "print('ready', flush=True)\nwhile True: time.sleep(0.05)\n")
                run = self.start(sys.executable, "-I", "-S", "-c", script,
                                 options=["--overwrite"])
                self.assertEqual(run.stdout.readline(), "ready\n")
                run.send_signal(number)
                run.communicate(timeout=LIMIT_SECONDS)
                self.assertEqual(run.returncode, 40)

    def test_a_killed_rank_leaves_a_closed_segment(self):
        run = self.start("sh", "-c", f"exec 3<&0; {CLIENT} hold <&3 & echo $!; wait $!")
        pid = int(run.stdout.readline())
        self.assertEqual(run.stdout.readline(), "open\n")
        os.kill(pid, signal.SIGKILL)
        run.communicate(timeout=LIMIT_SECONDS)
        self.assertEqual(run.returncode, 128 + 9)
        with self.segment() as segment:
            self.assertEqual(segment.attrs["complete"], 0)
            self.assertEqual(bytes(segment["data/mb0/forward/held/output.0"][:]), b"held")
        self.assertNotIn("writer_pid", self.rank())
        self.assertEqual(self.rank()["events"][0]["what"], "rank ended early")

    def test_a_whole_process_group_may_be_killed(self):
        run = self.start("setsid", "sh", "-c", f"echo $$; {CLIENT} hold")
        group = int(run.stdout.readline())
        self.assertEqual(run.stdout.readline(), "open\n")
        os.killpg(group, signal.SIGKILL)
        run.communicate(timeout=LIMIT_SECONDS)
        with self.segment() as segment:
            self.assertEqual(segment.attrs["complete"], 0)

    def test_a_dead_writer_disarms_and_the_program_goes_on(self):
        run = self.start(CLIENT, "disarm")
        self.assertEqual(run.stdout.readline(), "ready\n")
        os.kill(self.rank()["writer_pid"], signal.SIGKILL)
        output, errors = run.communicate(timeout=LIMIT_SECONDS)
        self.assertIn("writer died", output)
        self.assertEqual(errors.count("its writer died"), 1, errors)
        self.assertIn("did not finish", errors)


class Ranks(Capture):
    def test_a_second_process_of_a_rank_is_refused_and_harms_nothing(self):
        first_is_there = self.trace / "rank00000/rank.json"
        run = self.start("sh", "-c", f"exec 3<&0; {CLIENT} hold <&3 & "
                                     f"until [ -e {first_is_there} ]; do sleep 0.02; done; "
                                     f"{CLIENT} hold; echo second $?; wait")
        self.assertEqual(sorted([run.stdout.readline(), run.stdout.readline()]),
                         ["open\n", "second 3\n"])
        output, errors = run.communicate(timeout=LIMIT_SECONDS)
        self.assertIn("is being captured by another process", errors)
        self.assertEqual(self.rank()["records"], 1)
        self.assertTrue(self.rank()["degraded"])
        self.assertEqual([event["what"] for event in self.rank()["events"]], ["refused"])
        with self.segment() as segment:
            self.assertEqual(segment.attrs["complete"], 1)

    def test_a_rank_that_was_captured_before_is_left_as_it_is(self):
        done = self.capture("sh", "-c", f"{CLIENT} fill 3; {CLIENT} hold < /dev/null; echo $?")
        self.assertEqual(done.stdout, "recorded all\n3\n", done.stderr)
        self.assertIn("was captured before", done.stderr)
        self.assertEqual(self.rank()["records"], 3)
        self.assertEqual(self.rank()["events"][0]["what"], "refused")

    def test_ranks_come_from_the_launchers_variables(self):
        for rank, size in (("RANK", "WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
                           ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
                           ("SLURM_PROCID", "SLURM_NTASKS")):
            with self.subTest(rank):
                script = f"{rank}=3 {size}=5 {CLIENT} fill 1"
                done = self.capture("sh", "-c", script, options=["--overwrite"])
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual((self.rank(3)["rank"], self.rank(3)["world_size"]), (3, 5))

    def test_a_forked_child_is_inert(self):
        done = self.capture(CLIENT, "forked")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.rank()["records"], 2)


class FullDisk(Capture):
    def test_what_was_committed_stays_readable_and_the_rank_goes_on(self):
        self.trace.mkdir()
        if not mount_small_disk(self.trace, "8m"):
            self.skipTest("may not mount a small disk")
        self.addCleanup(subprocess.run, ["umount", self.trace], check=True)
        done = self.capture(CLIENT, "fill", "300")  # 19 MB
        self.check_full(done, "No space left on device")

    def test_a_file_size_limit_is_a_full_disk(self):
        limit = 4 << 20
        done = self.capture(CLIENT, "fill", "300", options=["--ring", "1M"],
                            preexec_fn=lambda: resource.setrlimit(
                                resource.RLIMIT_FSIZE, (limit, limit)))
        self.check_full(done, "File too large")

    def test_a_ring_beyond_the_file_size_limit_does_not_kill_the_program(self):
        limit = 4 << 20
        done = self.capture(CLIENT, "hold", stdin=subprocess.DEVNULL,
                            preexec_fn=lambda: resource.setrlimit(
                                resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("--ring", done.stderr)

    def check_full(self, done, reason):
        self.assertEqual(done.stdout, "recorded all\n", done.stderr)
        self.assertEqual(done.returncode, 5, done.stderr)  # ttrace_close told the program
        self.assertIn(reason, done.stderr)
        rank = self.rank()
        self.assertTrue(rank["degraded"])
        self.assertEqual(rank["records"] + rank["lost"], 300)
        self.assertGreater(rank["lost"], 0)
        with self.segment() as segment:
            self.assertEqual(segment.attrs["complete"], 0)
            names = segment["data/mb0/forward"]
            self.assertEqual(len(names), rank["records"])
            self.assertGreater(rank["records"], 20)
            for n in range(rank["records"]):
                values = names[f"record.{n}/output.0"][:]
                self.assertEqual(values.size, 1 << 16)
                self.assertTrue((values == n % 256).all())


class StartWeights(Capture):
    """--init-from: what the traced processes map."""

    def two_ranks(self, *options):
        script = (f"export WORLD_SIZE=2; RANK=0 {CLIENT} parameters & "
                  f"RANK=1 {CLIENT} parameters; wait $!")
        done = self.capture("sh", "-c", script, options=options)
        self.assertEqual(done.returncode, 0, done.stderr)
        source = self.folder / "source.trace"
        self.trace.rename(source)
        return source

    def test_a_pack_has_whole_parameters(self):
        source = self.two_ranks()
        done = self.capture("sh", "-c", "echo $TTRACE_OPTIONS", options=["--init-from", source])
        options = json.loads(done.stdout)
        self.assertEqual(options["init"]["kind"], "pack", done.stderr)
        pack = pathlib.Path(options["init"]["path"]).read_bytes()
        self.assertEqual(pack[:8], b"TTRACEPK")
        length = int.from_bytes(pack[8:16], "little")
        index = json.loads(pack[16:16 + length])
        start = (16 + length + 63) // 64 * 64
        self.assertEqual(sorted(index["tensors"]), ["layer.bias", "layer.weight"])
        for name, shape in (("layer.weight", [4, 3]), ("layer.bias", [3])):
            tensor = index["tensors"][name]
            self.assertEqual((tensor["dtype"], tensor["shape"]), ("float32", shape))
            self.assertEqual(tensor["offset"] % 64, 0)
            values = numpy.frombuffer(pack, numpy.float32, tensor["bytes"] // 4,
                                      start + tensor["offset"])
            self.assertEqual(values.tolist(), list(range(values.size)))

    def test_a_trace_that_lacks_a_rank_is_refused_by_name(self):
        source = self.two_ranks("--ranks", "0")
        done = self.capture("touch", self.folder / "ran", options=["--init-from", source])
        self.assertEqual(done.returncode, 2)
        self.assertIn("layer.weight", done.stderr)
        self.assertFalse((self.folder / "ran").exists())

    def test_a_trace_is_no_start_of_itself(self):
        self.two_ranks().rename(self.trace)
        done = self.capture("true", options=["--overwrite", "--init-from", self.trace])
        self.assertEqual(done.returncode, 2)
        self.assertTrue((self.trace / "rank00001/it000000.h5").exists())

    def test_a_seed_is_passed_on(self):
        done = self.capture("sh", "-c", "echo $TTRACE_OPTIONS", options=["--init-from", "seed:7"])
        self.assertEqual(json.loads(done.stdout)["init"], {"kind": "seed", "seed": 7})


class Installation(Capture):
    def test_pth_files_come_and_go(self):
        venv = self.folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        python = venv / "bin/python"
        done = subprocess.run([CAPTURE, "--install-pth", python], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        pth = pathlib.Path(done.stdout.strip())
        self.assertTrue(pth.is_relative_to(venv) and pth.exists(), pth)
        see = "import sys; print('ttrace_agent.arming' in sys.modules)"
        for options in (["-I"], ["-E"]):
            plain = subprocess.run([python, *options, "-c", see], capture_output=True, text=True,
                                   env=environment())
            self.assertEqual((plain.stdout, plain.stderr), ("False\n", ""))
            done = self.capture(python, *options, "-c", see, options=["--overwrite"])
            self.assertEqual(done.stdout, "True\n", done.stderr)
        done = subprocess.run([CAPTURE, "--uninstall-pth", python], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(pth.exists())


if __name__ == "__main__":
    unittest.main()
