"""Layout of a trial's folder, and the machine-written JSON files in it. The agent sees only `workspace/`.

trials/<trial_id>/
├── trial.json            resolved configuration (machine-written)
├── lock.json             digests and versions that the result depends on
├── grader.db             submissions and scores; only the grader writes it
├── events/               append-only logs, one writer each
│   ├── trial.jsonl           phases of the trial
│   ├── revisions.jsonl       code revisions
│   ├── processes.jsonl       what ran, CPU and memory
│   ├── gpu.jsonl             use of GPUs, where there are any
│   ├── commands.jsonl        command lines that the agent says it ran
│   ├── network.jsonl         what was fetched from registries or hosts, where the policy allows any
│   ├── metrics.jsonl         training metrics found in the workspace
│   └── interventions.jsonl   what people did while the agent worked (agent2 intervene)
├── workspace/            bound read-write at /workspace in the sandbox
│   ├── ASSIGNMENT.md, assignment.json
│   ├── data/                 train.jsonl, dev.jsonl
│   ├── code/                 the agent's programs
│   └── output/               the agent's checkpoints and design.json
├── revisions.git/        bare repository, one commit for each code revision
├── submissions/<n>/      snapshot/ (taken at submit time), card/ (evaluation on test_public)
├── cards/                base-test_public, base-test_private, base-noise, final-test_private
├── llm/                  recorded LLM traffic; no keys
├── launch/               the agent's configuration and prompt, read-only at /launch
├── run/                  unix sockets while the trial runs, each alone in its folder
├── harness.lock          held by the one harness that is at the trial
├── harness.alive         touched by it while the agent works
├── agent.log             what the agent printed (agent.1.log: before it was started again)
├── replay.json           of a replay: what was the same as in its source, and what was not
└── report/               report.json, report.md, report.html, figures

A recording made to be shared (`agent2 share`) has submissions.json in place of grader.db, cards/ and submissions/.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from agent2.arena.assignment import TrialConfig
from agent2.errors import ConfigError
from agent2.records import Split


@dataclass(frozen=True, slots=True)
class TrialPaths:
    """The paths of one trial."""

    root: Path

    @property
    def trial_json(self) -> Path:
        """Resolved configuration."""
        return self.root / "trial.json"

    @property
    def lock_json(self) -> Path:
        """Digests and versions."""
        return self.root / "lock.json"

    @property
    def agent(self) -> Path:
        """The agent's files as they ran."""
        return self.root / "agent"

    @property
    def grader_db(self) -> Path:
        """SQLite file of the grader."""
        return self.root / "grader.db"

    @property
    def events(self) -> Path:
        """Folder of the append-only logs."""
        return self.root / "events"

    @property
    def trial_log(self) -> Path:
        """Phases of the trial."""
        return self.events / "trial.jsonl"

    @property
    def revisions_log(self) -> Path:
        """Code revisions."""
        return self.events / "revisions.jsonl"

    @property
    def processes_log(self) -> Path:
        """Process samples."""
        return self.events / "processes.jsonl"

    @property
    def metrics_log(self) -> Path:
        """Training metrics found in the workspace."""
        return self.events / "metrics.jsonl"

    @property
    def commands_log(self) -> Path:
        """Command lines that the agent says it ran."""
        return self.events / "commands.jsonl"

    @property
    def gpu_log(self) -> Path:
        """Use of GPUs, where there are any."""
        return self.events / "gpu.jsonl"

    @property
    def network_log(self) -> Path:
        """What the agent's proxy fetched or connected to, where its network policy has one."""
        return self.events / "network.jsonl"

    @property
    def interventions_log(self) -> Path:
        """What people did while the agent worked."""
        return self.events / "interventions.jsonl"

    @property
    def llm(self) -> Path:
        """Recorded LLM traffic."""
        return self.root / "llm"

    @property
    def llm_socket(self) -> Path:
        """Unix socket of the LLM gateway, alone in its folder."""
        return self.root / "run" / "llm" / "gateway.sock"

    @property
    def launch(self) -> Path:
        """The agent's configuration files and prompt."""
        return self.root / "launch"

    @property
    def shared_submissions(self) -> Path:
        """The submissions of a recording that was made to be shared."""
        return self.root / "submissions.json"

    @property
    def replay_json(self) -> Path:
        """How a replay differs from its source."""
        return self.root / "replay.json"

    @property
    def workspace(self) -> Path:
        """All that the agent may write."""
        return self.root / "workspace"

    @property
    def revisions_git(self) -> Path:
        """Bare repository of code revisions."""
        return self.root / "revisions.git"

    @property
    def grader_socket(self) -> Path:
        """Unix socket of the grading API, alone in its folder so that the folder can be bound."""
        return self.root / "run" / "grader.sock"

    @property
    def agent_log(self) -> Path:
        """Standard output and error of the agent."""
        return self.root / "agent.log"

    @property
    def alive(self) -> Path:
        """Touched by the harness while the agent works: when a killed harness was alive last."""
        return self.root / "harness.alive"

    @property
    def resume_command(self) -> str:
        """What to type to resume the trial."""
        return f"agent2 resume {shlex.quote(str(self.root))}"

    @property
    def report(self) -> Path:
        """Folder of the report."""
        return self.root / "report"

    def submission(self, number: int) -> Path:
        """Folder of one submission."""
        return self.root / "submissions" / str(number)

    def snapshot(self, number: int) -> Path:
        """The checkpoint as it was when submitted."""
        return self.submission(number) / "snapshot"

    def submission_card(self, number: int) -> Path:
        """Its evaluation on test_public."""
        return self.submission(number) / "card"

    def card(self, who: str, split: Split) -> Path:
        """Card of `base` or `final` on a split."""
        return self.root / "cards" / f"{who}-{split.value}"

    @property
    def noise_card(self) -> Path:
        """Card of the base model with several sampling seeds, on the private items."""
        return self.root / "cards" / "base-noise"

    @property
    def integrity(self) -> Path:
        """What the integrity audit found."""
        return self.root / "integrity.json"

    @property
    def harness_lock(self) -> Path:
        """Locked while a harness is at the trial."""
        return self.root / "harness.lock"


def read_config(path: Path) -> TrialConfig:
    """The configuration of a trial. Raises ConfigError if the file is missing or damaged."""
    try:
        return TrialConfig.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path.parent}: no {path.name} there; pass the folder of a trial") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path}: {where}: {first['msg']}; it is machine-written, restore it") from error
