"""Run every reference solution, mutant and recorded program of the real data, and write what differs.

    python benchmarks/validate_all.py DATA_DIR [--only NAME ...] [--no-mutants] [--json OUT]

The numbers in docs/benchmarks.md come from here. DS-1000 needs pandas (its references were written for pandas 1.5).
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

from didpo.sandbox import open_sandbox
from didpo.tasks.benchmarks import load_benchmark
from didpo.validate import judge, read_graded, validate

REFERENCES = ["humaneval", "mbpp", "mbpp_sanitized", "leetcode", "leetcode_older", "apps", "gsm8k", "ds1000"]
RECORDED = {
    "livecodebench": ("livecodebench/lcb_submissions_sample.jsonl", "lcb"),
    "apps": ("apps/apps_generated_solutions.jsonl", "apps/train"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", nargs="*", default=[*REFERENCES, *(f"recorded:{n}" for n in RECORDED)])
    parser.add_argument("--no-mutants", action="store_true")
    parser.add_argument("--require", default="process", help="weakest sandbox level allowed")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = {}
    with open_sandbox(require=args.require, workers=args.workers) as sandbox:
        for name in args.only:
            if name.startswith("recorded:"):
                benchmark = name.removeprefix("recorded:")
                file, prefix = RECORDED[benchmark]
                tasks, _ = load_benchmark(benchmark, args.data, several=True)
                started = time.monotonic()
                count, different = judge(
                    benchmark, tasks, read_graded(args.data / file, prefix), sandbox, workers=args.workers
                )
                seconds = time.monotonic() - started
                print(f"{name}: {count - len(different)} of {count} verdicts equal ({seconds:.0f} s)", flush=True)
                for finding in different:
                    print(f"  {finding.task_id} {finding.program}: {finding.reason}", flush=True)
                found[name] = {"total": count, "different": [asdict(f) for f in different]}
            else:
                report = validate(name, args.data, sandbox, with_mutants=not args.no_mutants, workers=args.workers)
                print(report, flush=True)
                found[name] = report.to_json()
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
