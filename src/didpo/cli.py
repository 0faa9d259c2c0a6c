"""The command line: `didpo train | eval | compare | credit | validate | report | doctor`.

Here only arguments are read and answers printed; every command calls one function of the package. A mistake of the user
is one line on standard error and exit code 2.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from didpo import __version__
from didpo.errors import UserError

if TYPE_CHECKING:
    from didpo.settings import RunSettings

EXAMPLES = {
    "train": """examples:
  didpo train                                     the embedded default: minutes on a laptop, no download
  didpo train --algorithm grpo --seed 1           another algorithm
  didpo train --config my.toml --rl.steps 100     a TOML file, then dotted flags
  didpo train --run-dir runs/a --resume           go on where a run was stopped
  didpo train --dry-run                           what would run: steps, tokens, memory
  didpo train --help-settings                     every setting with its type and default""",
    "eval": """examples:
  didpo eval runs/demo                            the last checkpoint of a run, on its held-out tasks
  didpo eval runs/demo --evaluation.tasks 400 --json""",
    "compare": """examples:
  didpo compare --algorithms grpo,gigpo,didpo_published,didpo --seeds 3
  didpo compare --algorithms grpo,didpo --seeds 8 --jobs 2 --rl.steps 60""",
    "credit": """examples:
  didpo credit attempts.jsonl.gz --html out.html  recorded attempts, no model needed
  didpo credit runs/demo --algorithm didpo        the rollouts that a run stored
  didpo credit *.traj --compare grpo,gigpo,didpo --html out.html
  didpo credit runs/demo --audit                  each scorer against the known truth of generated tasks""",
    "validate": """examples:
  didpo validate humaneval --data DATA            references must pass, mutants must fail, before any training
  didpo validate apps --data DATA --json --n 50   filters as in docs/benchmarks.md""",
    "report": """examples:
  didpo report runs/demo                          write runs/demo/report.html again""",
    "doctor": """examples:
  didpo doctor                                    what this machine offers: sandbox level, torch, memory
  didpo doctor --json""",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (0, 2 for a user's mistake, 130 when interrupted)."""
    # Threads that spin while they wait cost several times the work where cores are shared; read when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    parser = build_parser()
    args, rest = parser.parse_known_args(argv)
    try:
        args.flags = read_flags(rest)
        if args.flags and not args.takes_settings:
            raise UserError(f"unknown argument --{next(iter(args.flags))}; see `didpo {args.command} --help`")
        return args.run(args)
    except UserError as error:
        print(f"didpo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("didpo: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a disk that is full, a folder that may not be written
        where = f"{error.filename2 or error.filename}: " if error.filename else ""
        print(f"didpo: {where}{error.strerror or error}", file=sys.stderr)
        return 2


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="didpo", description="Train coding agents with credit for each part of an edit."
    )
    parser.add_argument("--version", action="version", version=f"didpo {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, run: Callable[[Any], int], *, settings: bool) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=text,
            description=text,
            epilog=EXAMPLES[name],
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        sub.set_defaults(run=run, takes_settings=settings)
        sub.add_argument("--json", action="store_true", help="print the answer as JSON")
        return sub

    train = command("train", "train an agent and write a report", run_train, settings=True)
    add_settings_arguments(train)
    train.add_argument("--algorithm", metavar="NAME", help="grpo, gigpo, didpo_published, didpo, ... (default: didpo)")
    train.add_argument(
        "--run-dir", metavar="DIR", help="where the run is written (default: runs/PRESET-ALGORITHM-sSEED)"
    )
    train.add_argument("--overwrite", action="store_true", help="replace a run that is there")
    train.add_argument("--resume", action="store_true", help="continue a run that is there")
    train.add_argument("--dry-run", action="store_true", help="print the resolved plan and settings; run nothing")

    evaluate = command("eval", "evaluate a trained run on held-out tasks", run_eval, settings=True)
    evaluate.add_argument("run_dir", metavar="RUN_DIR", help="a run directory")

    compare = command("compare", "train several algorithms with the same budget; one table", run_compare, settings=True)
    add_settings_arguments(compare)
    compare.add_argument("--algorithms", default="grpo,gigpo,didpo_published,didpo", metavar="A,B,...")
    compare.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds 0 to N-1 (default: 3)")
    compare.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time (default: 1)")
    compare.add_argument("--run-dir", default="runs/compare", metavar="DIR", help="finished runs in it are kept")

    credit = command("credit", "compute credit for recorded trajectories", run_credit, settings=True)
    credit.add_argument("files", nargs="+", metavar="FILE", help="trajectory files, or a run directory")
    credit.add_argument("--format", default="auto", metavar="NAME", help="of the files (default: recognised)")
    credit.add_argument("--algorithm", default="didpo", metavar="NAME", help="credit function (default: didpo)")
    credit.add_argument("--compare", metavar="A,B,...", help="several credit functions side by side")
    credit.add_argument("--html", metavar="FILE", help="draw the heat-map")
    credit.add_argument("--out", metavar="FILE", help="write the credit, one JSON object per group and line")
    credit.add_argument("--audit", action="store_true", help="score credit against the truth known for generated tasks")

    validate = command(
        "validate", "run a benchmark's reference solutions and wrong mutants", run_validate, settings=True
    )
    validate.add_argument("benchmark", metavar="BENCHMARK", help="see docs/benchmarks.md")
    validate.add_argument("--data", required=True, metavar="DIR", help="folder with the benchmark's files")
    validate.add_argument("--no-mutants", action="store_true", help="references alone")

    report = command("report", "write the report of a run again", run_report, settings=False)
    report.add_argument("run_dir", metavar="RUN_DIR")

    command("doctor", "say what this machine offers and how to get more", run_doctor, settings=False)
    return parser


def add_settings_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--preset", default="embedded", metavar="NAME", help="embedded (default) or smoke")
    parser.add_argument("--config", metavar="FILE", help="a TOML file of settings")
    parser.add_argument("--seed", type=int, help="seed of everything random")
    parser.add_argument("--help-settings", action="store_true", help="list every setting")


def read_flags(rest: Sequence[str]) -> dict[str, str]:
    """["--rl.steps", "3", "--a=b"] -> {"rl.steps": "3", "a": "b"}; anything else is a mistake."""
    flags: dict[str, str] = {}
    items = iter(rest)
    for item in items:
        if not item.startswith("--") or item == "--":
            raise UserError(f"unexpected argument {item!r}; settings are given as --section.name value")
        name, equals, value = item[2:].partition("=")
        if not equals:
            value = next(items, "")
            if not value or value.startswith("--"):
                raise UserError(f"--{name} needs a value")
        flags[name.replace("-", "_")] = value
    return flags


def resolve_settings(args: argparse.Namespace, base: RunSettings | None = None) -> RunSettings:
    """Preset (or `base`), then the TOML file, then flags."""
    from didpo.config import nest, override, read_toml
    from didpo.errors import unknown_name
    from didpo.settings import PRESETS

    if base is None:
        if args.preset not in PRESETS:
            raise unknown_name("preset", args.preset, PRESETS)
        base = PRESETS[args.preset]
        if args.config:
            base = override(base, read_toml(args.config))
    flags = dict(args.flags)
    for name in ("algorithm", "seed"):
        if getattr(args, name, None) is not None:
            flags[name] = str(getattr(args, name))
    return override(base, nest(flags))


def print_settings() -> int:
    from didpo.config import describe
    from didpo.settings import RunSettings

    for name, kind, default in describe(RunSettings()):
        print(f"--{name:34} {kind:28} {default}")
    return 0


def run_train(args: argparse.Namespace) -> int:
    if args.help_settings:
        return print_settings()
    settings = resolve_settings(args)
    run_dir = args.run_dir or f"runs/{args.preset}-{settings.algorithm}-s{settings.seed}"
    from didpo.planning import plan, plan_text

    planned = plan(settings)  # refuses an algorithm or a model that is none before anything is written
    if args.dry_run:
        from didpo.config import to_toml

        print(json.dumps(planned) if args.json else f"{plan_text(planned)}\n\n{to_toml(settings)}")
        return 0
    from didpo.report import write_report
    from didpo.rundir import prepare
    from didpo.trainer import run

    prepare(run_dir, settings, overwrite=args.overwrite, resume=args.resume)
    summary = run(settings, run_dir, resume=args.resume, quiet=args.json)
    page = write_report(run_dir)
    if args.json:
        print(json.dumps({**summary, "report": str(page)}))
        return 0
    before, after = summary["eval_before"], summary["eval_after"]
    print(
        f"held-out success {before['success']:.2f} -> {after['success']:.2f} "
        f"(95 % interval {after['low']:.2f} to {after['high']:.2f}, n = {after['n']})\nreport: {page}"
    )
    return 0


def run_eval(args: argparse.Namespace) -> int:
    from didpo.config import override, read_toml
    from didpo.evaluate import evaluate_run
    from didpo.rundir import RunDir
    from didpo.settings import RunSettings

    run_dir = RunDir(args.run_dir)
    if not run_dir.config.is_file():
        raise UserError(f"{args.run_dir} is not a run directory (no config.toml); train one with `didpo train`")
    settings = resolve_settings(args, base=override(RunSettings(), read_toml(run_dir.config)))
    result = evaluate_run(settings, run_dir)
    if args.json:
        print(json.dumps(result))
    else:
        print(
            f"success {result['success']:.3f} (95 % interval {result['low']:.3f} to {result['high']:.3f}, "
            f"n = {result['n']}, errors apart: {result['errors']})"
        )
    return 0


def run_compare(args: argparse.Namespace) -> int:
    if args.help_settings:
        return print_settings()
    from didpo.compare import compare, table_text

    if args.seeds < 1 or args.jobs < 1:
        raise UserError("--seeds and --jobs must be at least 1")
    settings = resolve_settings(args)
    algorithms = [name for name in args.algorithms.split(",") if name]
    if not algorithms:
        raise UserError("--algorithms needs at least one name, such as grpo,didpo")
    result = compare(settings, algorithms, seeds=range(args.seeds), run_dir=args.run_dir, jobs=args.jobs)
    print(json.dumps(result) if args.json else table_text(result))
    return 0


def run_credit(args: argparse.Namespace) -> int:
    from didpo.commands import compute_credit, credit_text, load_groups, report_json

    for path in (args.out, args.html):
        if path and any(os.path.realpath(path) == os.path.realpath(name) for name in args.files):
            raise UserError(f"{path} is one of the files to read; write to another place")
    groups, report = load_groups(args.files, args.format)
    names = args.compare.split(",") if args.compare else [args.algorithm]
    if args.audit:
        from didpo.commands import audit_groups, audit_text

        scores = audit_groups(groups, args.flags)
        print(json.dumps(scores) if args.json else audit_text(scores))
        return 0
    credits = compute_credit(groups, names, args.flags)
    if args.out:
        from didpo.credit.io import write_credit

        write_credit(args.out, [credit for name in names for credit in credits[name]])
    if args.html:
        from didpo.report import write_credit_page

        write_credit_page(args.html, groups, credits)
    if args.json:
        metrics = {name: [c.metrics for c in credits[name]] for name in names}
        answer = {"groups": len(groups), "import": report_json(report), "metrics": metrics}
        print(json.dumps({**answer, "html": args.html, "out": args.out}))
    else:
        print(credit_text(credits, report))
        for kind, path in (("credit", args.out), ("page", args.html)):
            if path:
                print(f"{kind}: {path}")
    return 0


def run_validate(args: argparse.Namespace) -> int:
    from didpo.config import parse_plain
    from didpo.progress import open_progress
    from didpo.sandbox import open_sandbox
    from didpo.validate import validate

    filters = {name: parse_plain(value) for name, value in args.flags.items()}
    progress = open_progress("silent" if args.json else "auto")
    with open_sandbox() as sandbox, progress:
        report = validate(
            args.benchmark, args.data, sandbox, with_mutants=not args.no_mutants, progress=progress, **filters
        )
    print(json.dumps(report.to_json()) if args.json else report)
    return 0


def run_report(args: argparse.Namespace) -> int:
    from didpo.report import write_report

    page = write_report(args.run_dir)
    print(json.dumps({"report": str(page)}) if args.json else f"report: {page}")
    return 0


def run_doctor(args: argparse.Namespace) -> int:
    from didpo.doctor import diagnose, doctor_text

    found = diagnose()
    print(json.dumps(found, indent=2) if args.json else doctor_text(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
