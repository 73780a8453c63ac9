# SPDX-License-Identifier: Apache-2.0
"""ttrace-verify as a user runs it: verdicts, what is cached and what is not, failures, signals.

The verdicts come from real runs of the torch sample, in a copy whose files are edited. What has
nothing to do with tensors uses a C program, which runs in milliseconds.
"""
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

BUILD = pathlib.Path(os.environ["TTRACE_BUILD"])
SOURCE = pathlib.Path(os.environ["TTRACE_SOURCE"])
sys.path.insert(0, str(SOURCE / "test"))
import forkserver  # noqa: E402

VERIFY = BUILD / "tools/ttrace-verify"
CLIENT = f"{BUILD / 'test/capture/abi_client'} fill 3"
TRAINER = BUILD / "samples/cpp/trainer"
FORKED = SOURCE / "test/capture/programs/forked.py"
SERVER = forkserver.Server()
MODEL = ["--iters", "1", "--layers", "2", "--hidden", "32", "--heads", "2", "--seq", "32"]
LIMIT_SECONDS = 120
RANK_VARIABLES = ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
STEPS = 6  # one candidate, no --reference-high
UNFED_STEPS = 5  # of a program on the C interface that does not call ttrace_feed


def environment(**more):
    kept = {name: value for name, value in os.environ.items()
            if name not in RANK_VARIABLES and not name.startswith("TTRACE_")}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


class Verify(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="ttrace-test-")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)

    def verify(self, *options, expected=None, **more):
        done = subprocess.run([str(word) for word in (VERIFY, *options)], cwd=self.folder,
                              env=environment(**more), capture_output=True, text=True,
                              timeout=LIMIT_SECONDS)
        if expected is not None:
            self.assertEqual(done.returncode, expected, done.stdout[-4000:] + done.stderr[-4000:])
        return done

    def steps(self, done):
        """Step -> whether it was cached."""
        lines = [line for line in done.stderr.splitlines() if line.startswith("[")]
        return {" ".join(line.split("] ")[1].split("  ")[0].split()): line.endswith("cached")
                for line in lines}


class TorchRuns(Verify):
    """One folder of results all along, as somebody who hunts a bug would have it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name in ("samples/torch", "tp"):
            shutil.copytree(SOURCE / "samples/torch", cls.folder / name)
        cls.train = cls.folder / "samples/torch/train.py"

    def command(self, *arguments, ranks=1, train=None):
        fork = [] if ranks == 1 else [FORKED, ranks]
        return shlex.join(str(word) for word in (*SERVER.command(), *fork, train or self.train,
                                                 *MODEL, *arguments))

    def runs(self, *more):
        return ["--reference", self.command(), "-o", "out", *more]

    def test_1_a_healthy_layout_is_the_same_and_then_cached(self):
        tp2 = self.command("--tp", "2", ranks=2, train=self.folder / "tp/train.py")
        options = self.runs("--candidate", tp2)
        first = self.verify(*options, expected=0)
        self.assertTrue(first.stdout.startswith("same: candidate computes what the reference "),
                        first.stdout)
        self.assertIn("give --reference-high for paired noise", first.stdout)
        self.assertNotIn("for a sharp verdict", first.stdout)
        self.assertEqual(list(self.steps(first).values()), [False] * STEPS, first.stderr)

        started = time.monotonic()
        second = self.verify(*options, TERM="other", expected=0)
        self.assertLess(time.monotonic() - started, 3)
        self.assertEqual(list(self.steps(second).values()), [True] * STEPS, second.stderr)
        self.assertIn("6 steps were cached", second.stdout)

        # A file of the candidate's that no command names: it is imported.
        with open(self.folder / "tp/parallel.py", "a") as imported:
            imported.write("\n")
        third = self.verify(*options, "-v", expected=0)
        self.assertEqual(self.steps(third)["reference: capture"], True, third.stderr)
        self.assertEqual(list(self.steps(third).values())[1:], [False] * (STEPS - 1))
        self.assertIn("changed: file " + str(self.folder.resolve() / "tp/parallel.py"),
                      third.stderr)

    def test_2_several_candidates_make_a_table_and_documents(self):
        bug = self.command("--tp", "2", "--bug", "embedding-mask", ranks=2)
        lost = self.command("--bug", "layers-lost")
        done = self.verify(*self.runs("--candidate", bug, "--name", "mask", "--candidate", lost,
                                      "--junit", "out.xml", "--json", "out.json"), expected=1)
        self.assertTrue(self.steps(done)["reference: capture"], done.stderr)
        rows = [line.split() for line in done.stdout.splitlines()[:3]]
        self.assertEqual(rows[0][:2], ["candidate", "verdict"])
        self.assertEqual(rows[1][:5], ["mask", "differs", "embedding", "forward", "output.0"])
        self.assertEqual(rows[2][:3], ["candidate2", "differs", "layers.1"])

        document = json.loads((self.folder / "out.json").read_text())
        self.assertEqual((document["format"], document["version"], document["verdict"]),
                         ("ttrace-verify", 1, "differs"))
        mask, lost = document["candidates"]
        self.assertEqual((mask["name"], mask["found"]), ("mask", "local"))
        for part in ("local", "end_to_end"):
            self.assertEqual(mask[part]["format"], "ttrace-report")
            self.assertEqual(mask[part]["first"]["module"], "embedding")
            self.assertEqual(lost[part]["first"]["kind"], "missing")
        self.assertEqual(mask["local"]["mode"], "local")
        self.assertEqual(mask["end_to_end"]["mode"], "bound")
        self.assertEqual(len(mask["commands"]), STEPS)

        suites = xml.etree.ElementTree.parse(self.folder / "out.xml").getroot()
        for count in ("tests", "failures"):
            self.assertEqual(int(suites.get(count)),
                             sum(int(suite.get(count)) for suite in suites))
        names = {suite.get("name") for suite in suites}
        self.assertEqual(len(names), len(suites))
        self.assertIn("mask end to end forward", names)

        text = (self.folder / "out/mask/report.txt").read_text()
        self.assertTrue(text.startswith("differs: the first module of mask that diverges is "
                                        "`embedding` (forward, output.0)"), text)
        self.assertIn("it was introduced there", text)
        for command in mask["commands"]:
            self.assertIn("\n" + command + "\n", text)

    def test_3_the_script_gives_the_verdict_again(self):
        bug = self.command("--tp", "2", "--bug", "embedding-mask", ranks=2)
        self.verify(*self.runs("--candidate", bug, "--name", "mask"), expected=1)
        done = subprocess.run(["sh", self.folder / "out/commands.sh"], env=environment(),
                              capture_output=True, text=True, timeout=LIMIT_SECONDS)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("\ndiffers: the first module that diverges is "
                                           "`embedding`"), 2, done.stdout)

    def test_4_high_precision_and_a_hint_for_low(self):
        done = self.verify("--reference", self.command("--bf16"), "--reference-high",
                           self.command(), "--candidate", self.command("--bf16"), "-o", "bf16",
                           "--json", "-", expected=0)
        document = json.loads(done.stdout)
        self.assertEqual(document["reference_precision"], "bfloat16")
        self.assertTrue(any("--high bf16/candidate/high.trace" in command
                            for command in document["candidates"][0]["commands"]))
        text = (self.folder / "bf16/candidate/report.txt").read_text()
        self.assertIn("verify a float32 run of both first", text)
        self.assertNotIn("give --reference-high", text)


class Steps(Verify):
    """With a C program, whose start weights are its own."""

    def setUp(self):
        self.out = self.id().split(".")[-1]

    def run_steps(self, reference, candidate, *options, **settings):
        return self.verify("--reference", reference, "--candidate", candidate, "--no-init-from",
                           "-o", self.out, *options, **settings)

    def test_what_a_command_depends_on_makes_it_run_again(self):
        script = self.folder / "program.sh"
        script.write_text(CLIENT + "\n")
        again = [("nothing", {}, "", True),
                 ("environment", {"SOME_SWITCH": "1"}, "", False),
                 ("script", {"SOME_SWITCH": "1"}, "# more\n", False),
                 ("nothing else", {"SOME_SWITCH": "1", "TERM": "x", "SHLVL": "7"}, "", True)]
        self.run_steps(f"sh {script}", CLIENT, expected=0)
        for what, variables, more, cached in again:
            with self.subTest(what):
                before = script.stat()
                script.write_text(script.read_text() + more)
                os.utime(script, ns=(before.st_atime_ns, before.st_mtime_ns))
                done = self.run_steps(f"sh {script}", CLIENT, expected=0, **variables)
                self.assertEqual(self.steps(done)["reference: capture"], cached, done.stderr)

    def test_sources_that_are_imported_from_elsewhere_count(self):
        bin_folder, packages = (self.folder / "venv" / part
                                for part in ("bin", "lib/python3.11/site-packages"))
        sources = {kind: self.folder / kind for kind in ("editable", "on_path", "unrelated")}
        for folder in (bin_folder, packages, *sources.values()):
            folder.mkdir(parents=True)
        program = bin_folder / "program"
        program.write_text(f"#!/bin/sh\nexec {CLIENT}\n")
        program.chmod(0o755)
        (packages / "__editable__.mine.pth").write_text(f"{sources['editable']}\n")
        variables = {"PATH": f"{bin_folder}:{os.environ['PATH']}",
                     "PYTHONPATH": str(sources["on_path"])}
        self.run_steps("program", CLIENT, expected=0, **variables)
        for changed, cached in ((sources["unrelated"] / "a.py", True),
                                (sources["editable"] / "a.py", False),
                                (sources["on_path"] / "a.py", False),
                                (packages / "torch-9.9.dist-info", False),
                                (sources["on_path"] / "notes.txt", True)):
            with self.subTest(changed.name, folder=changed.parent.name):
                changed.write_text("more")
                done = self.run_steps("program", CLIENT, expected=0, **variables)
                self.assertEqual(self.steps(done)["reference: capture"], cached, done.stderr)

    def test_output_that_was_lost_is_made_again_and_so_is_what_follows(self):
        self.run_steps(CLIENT, CLIENT, expected=0)
        (self.folder / self.out / "candidate/candidate.trace/rank00000/it000000.h5").unlink()
        done = self.run_steps(CLIENT, CLIENT, expected=0)
        self.assertEqual(list(self.steps(done).values()), [True] + [False] * (UNFED_STEPS - 1))
        done = self.run_steps(CLIENT, CLIENT, "--fresh", expected=0)
        self.assertEqual(list(self.steps(done).values()), [False] * UNFED_STEPS)

    def test_a_file_that_the_command_writes_is_no_input(self):
        for cached in (False, True):
            done = self.run_steps(CLIENT + " > printed.log", CLIENT, expected=0)
            self.assertEqual(self.steps(done)["reference: capture"], cached, done.stderr)

    def test_quotes_survive_in_the_script(self):
        awkward = f"""{CLIENT} > "$(printf "it's %s" 'a $log')\""""
        self.run_steps(awkward, CLIENT, expected=0)
        (self.folder / "it's a $log").unlink()
        done = subprocess.run(["sh", self.folder / self.out / "commands.sh"], env=environment(),
                              capture_output=True, text=True, timeout=LIMIT_SECONDS)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual((self.folder / "it's a $log").read_text(), "recorded all\n")

    def test_a_command_that_fails_is_2_and_the_log_is_shown(self):
        done = self.run_steps("echo one word of it; exit 3", CLIENT, expected=2)
        self.assertIn("  one word of it\n", done.stderr)
        self.assertRegex(done.stderr, r"ttrace-verify: reference: capture: \S+/reference.log: the "
                                      r"command ended with exit code 3; mend it, [^\n]+\n\Z")
        self.assertEqual(done.stdout, "")
        done = self.run_steps("true", CLIENT, "--json", "-", expected=2)
        self.assertIn("nothing was captured", json.loads(done.stdout)["message"])

    def test_a_candidate_that_fails_does_not_stop_the_next(self):
        done = self.run_steps(CLIENT, "exit 3", "--candidate", CLIENT, "--junit", "failed.xml",
                              expected=2)
        self.assertRegex(done.stdout, r"(?m)^candidate1 +cannot tell ")
        self.assertRegex(done.stdout, r"(?m)^candidate2 +same ")
        suites = xml.etree.ElementTree.parse(self.folder / "failed.xml").getroot()
        self.assertEqual(suites.get("errors"), "2")

    def test_a_failure_after_a_complete_trace_needs_keep_going(self):
        failing = CLIENT + "; exit 5"
        done = self.run_steps(CLIENT, failing, expected=2)
        self.assertIn("exit code 5, though its trace is complete; give --keep-going", done.stderr)
        self.run_steps(CLIENT, failing, "--keep-going", expected=0)
        self.run_steps(CLIENT, failing, expected=2)

    def test_a_command_that_takes_too_long_is_ended(self):
        done = self.run_steps("sleep 60; true", CLIENT, "--timeout", "1", expected=2)
        self.assertIn("was ended after 1 s", done.stderr)

    def test_a_program_that_does_not_feed_is_judged_end_to_end(self):
        done = self.run_steps(CLIENT, CLIENT, expected=0)
        self.assertIn("this command was fed with nothing (a C or C++ program must call ttrace_feed",
                      done.stdout)
        self.assertIn("weak", done.stdout)

    def test_a_c_program_that_feeds_is_judged_module_by_module(self):
        done = self.run_steps(TRAINER, f"{TRAINER} --tp 2", expected=0)
        self.assertEqual(list(self.steps(done).values()), [False] * STEPS, done.stderr)
        self.assertIn("Each module alone, fed with the candidate's own tensors: same", done.stdout)
        done = self.run_steps(TRAINER, f"{TRAINER} --tp 2 --bug embedding-mask", expected=1)
        self.assertIn("the first module of candidate that diverges is `embedding` (forward, "
                      "output.0)", done.stdout)
        self.assertIn("Found with each module alone", done.stdout)

    def test_signals_end_the_command_and_the_next_run_goes_on(self):
        pid_file = self.folder / "pid"
        waiting = f"{CLIENT}; echo $$ > {pid_file}; exec sleep 60"
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number):
                pid_file.unlink(missing_ok=True)
                run = subprocess.Popen([VERIFY, "--reference", CLIENT, "--candidate", waiting,
                                        "--no-init-from", "-o", self.out], cwd=self.folder,
                                       env=environment(), stderr=subprocess.PIPE, text=True)
                while not (pid_file.exists() and pid_file.read_text().endswith("\n")):
                    self.assertIsNone(run.poll())
                    time.sleep(0.05)
                run.send_signal(number)
                errors = run.communicate(timeout=LIMIT_SECONDS)[1]
                self.assertEqual(run.returncode, 2, errors)
                self.assertIn("start ttrace-verify again to go on", errors)
                self.assertFalse(os.path.exists(f"/proc/{pid_file.read_text().strip()}"))
        done = self.run_steps(CLIENT, CLIENT, expected=0)
        self.assertEqual(list(self.steps(done).values()), [True] + [False] * (UNFED_STEPS - 1))

    def test_two_at_once_in_a_folder_are_refused_and_so_are_other_peoples_files(self):
        (self.folder / "mine").mkdir()
        (self.folder / "mine/thesis.tex").write_text("years of work")
        done = self.verify("--reference", CLIENT, "--candidate", CLIENT, "-o", "mine", expected=2)
        self.assertIn("choose another", done.stderr)
        self.assertEqual(os.listdir(self.folder / "mine"), ["thesis.tex"])
        nested = shlex.join([str(VERIFY), "--reference", "true", "--candidate", "true", "-o",
                             self.out])
        self.run_steps(nested, CLIENT, expected=2)
        log = (self.folder / self.out / "reference.log").read_text()
        self.assertIn("another ttrace-verify works in it", log)

    def test_mistakes_on_the_command_line_are_2_and_touch_nothing(self):
        good = ["--reference", "true", "--candidate", "true"]
        for options in (["--reference", "true"], ["--candidate", "true"],
                        good + ["--candidat", "x"], good + ["--iterations", "x"],
                        good + ["--name", "a/b"],
                        good + ["--name", "a", "--name", "b"], good + ["--layout", "none"],
                        good + ["--json", "-", "--junit", "-"], good + ["--candidate", " "]):
            with self.subTest(options):
                done = self.verify(*options, "-o", "none", expected=2)
                self.assertRegex(done.stderr, r"\Attrace-verify: [^\n]+[,;] [^\n]+\n\Z")
                self.assertFalse((self.folder / "none").exists())
        self.verify(*good, "-o", "none", SLURM_PROCID="1", expected=2)

    def test_help_begins_with_an_example(self):
        lines = self.verify("--help", expected=0).stdout.splitlines()
        self.assertTrue(lines[0].startswith("Example: ttrace-verify --reference "))
        self.assertLessEqual(len(lines), 40)


if __name__ == "__main__":
    unittest.main()
